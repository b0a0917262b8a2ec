"""Runs a program: reads its text, computes its values, and says which functions it calls. Nothing is executed but what
this file computes. Python only parses the text."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from fractions import Fraction
from typing import Any

from agent.program import values
from agent.program.places import zone_of
from agent.program.units import convert, is_exchanged
from agent.program.values import BadProgram, Clock, Duration, NeedsRate, Quantity, Value
from agent.program.walk import MOVES, TURNS, Walk
from agent.words.language import language

_ENGLISH = language("en")

_MAX_CHARACTERS, _MAX_STATEMENTS, _MAX_EXPONENT = 2000, 24, 256
_MAX_BITS, _MAX_DIGITS = 1000, 9
"""Limits of a program and of its numbers: larger ones take long, and nobody wants to hear them."""

_SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400, "weeks": 604_800}
_MONTHS = {"months": 1, "years": 12}
_CLOCK = re.compile(r"(\d{1,2})(?::(\d\d))? ?([ap]m)?", re.IGNORECASE)
_NAMED_CLOCKS = {"noon": 12 * 60, "midday": 12 * 60, "midnight": 0}
_OPERATIONS: dict[type[ast.operator], Callable[[Value, Value], Value]] = {
    ast.Add: values.add, ast.Sub: values.subtract, ast.Mult: values.multiply, ast.Div: values.divide,
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Eq: operator.eq,
}  # fmt: skip

QUESTION, REFUSAL, TALK = "ask", "cannot", "talk"
"""Functions that say something about the request: what is missing, what cannot be done, that it is no task."""


@dataclass(frozen=True)
class FunctionCall:
    """A call of a function that acts or looks something up.

    Attributes:
        arguments: numbers, texts and booleans.
        written: the arguments as the program has them, followed by what their names were assigned.
    """

    name: str
    arguments: Mapping[str, Any]
    written: Mapping[str, str]


@dataclass(frozen=True)
class Outcome:
    """What a program comes to.

    Attributes:
        answers: the values that it computes to be said, each with what it counts, or an empty text.
        calls: in their order.
        question: what the user is to be asked; empty if nothing.
        refusal: what cannot be done; empty if nothing.
        is_talk: whether what the user said is no task.
        computing: the program without its calls.
    """

    answers: tuple[tuple[Value, str], ...] = ()
    calls: tuple[FunctionCall, ...] = ()
    question: str = ""
    refusal: str = ""
    is_talk: bool = False
    computing: str = ""


def run_program(text: str, now: datetime, functions: Mapping[str, Sequence[str]]) -> Outcome:
    """Run a program.

    Args:
        now: the time here, with its zone.
        functions: the parameters of the functions that it may call, in their order.

    Raises:
        BadProgram: it is not understood, or a value of it cannot be computed.
    """
    if len(text) > _MAX_CHARACTERS:
        raise BadProgram("the program is too long")
    try:
        body = ast.parse(text.strip()).body
        if not body or len(body) > _MAX_STATEMENTS:
            raise BadProgram("the program is empty or too long")
        return _Run(now, functions).run(body)
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        if isinstance(error, BadProgram):
            raise
        raise BadProgram(str(error)) from None


class _Run:
    def __init__(self, now: datetime, functions: Mapping[str, Sequence[str]]) -> None:
        self._now, self._functions = now, functions
        self._before = ""  # the statements before the one that is run
        self._assigned: dict[str, ast.expr] = {}
        self._walk = Walk()
        self._names: dict[str, Value] = {
            "now": now, "today": now.date(), "this_year": Fraction(now.year), "pi": Fraction(math.pi),
        }  # fmt: skip

    def run(self, body: Sequence[ast.stmt]) -> Outcome:
        answers: list[tuple[Value, str]] = []
        calls: list[FunctionCall] = []
        computing: list[str] = []
        said = {QUESTION: "", REFUSAL: "", TALK: ""}
        for position, statement in enumerate(body):
            self._before = "".join(f"{ast.unparse(earlier)}\n" for earlier in body[:position])
            match statement:
                case ast.Expr(value=ast.Call(func=ast.Name(id=name)) as call) if name in said:
                    arguments = [self._value(argument) for argument in call.args]
                    text = str(arguments[0]) if arguments else name
                    said[name] = f"{said[name].rstrip('.')} or {text}" if said[name] and name == REFUSAL else text
                    continue
                case ast.Expr(value=ast.Call(func=ast.Name(id=name)) as call) if name in self._functions:
                    calls.append(self._call(name, call))
                    continue
                case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=[])) if name in TURNS:
                    self._walk.turn(name)
                case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=[length])) if name in MOVES:
                    self._walk.move(name, _number([self._value(length)]))
                case ast.Assign(targets=[ast.Name(id="answer")], value=expression) | ast.Expr(value=expression):
                    answers.append(self._answer(expression))
                case ast.Assign(targets=[ast.Name(id=name)], value=expression) if name not in ("now", "today"):
                    self._names[name], self._assigned[name] = self._value(expression), expression
                case _:
                    raise BadProgram("only assignments and calls are understood")
            computing.append(ast.unparse(statement))
        if not answers and not calls and not any(said.values()):
            raise BadProgram("the program has no answer", "\n".join([*computing, "answer = "]))
        text = "\n".join(computing) if answers else ""
        return Outcome(tuple(answers), tuple(calls), said[QUESTION], said[REFUSAL], bool(said[TALK]), text)

    def _answer(self, expression: ast.expr) -> tuple[Value, str]:
        match expression:
            case ast.Tuple(elts=[value, ast.Constant(value=str() as unit)]):
                return self._value(value), unit.strip()
        return self._value(expression), ""

    def _call(self, name: str, call: ast.Call) -> FunctionCall:
        parameters = self._functions[name]
        if len(call.args) > len(parameters):
            raise BadProgram(f"{name} gets too many arguments")
        given = dict(zip(parameters, call.args, strict=False))
        for keyword in call.keywords:
            if keyword.arg is None or keyword.arg not in parameters or keyword.arg in given:
                raise BadProgram(f"{name} has no parameter {keyword.arg}")
            given[keyword.arg] = keyword.value
        values_given = {parameter: self._value(value) for parameter, value in given.items()}
        if "day" in given and any(isinstance(value, Clock) and value.days for value in values_given.values()):
            raise BadProgram("the time lies on another day")
        written = {parameter: self._written(value) for parameter, value in given.items()}
        return FunctionCall(name, {parameter: plain(value) for parameter, value in values_given.items()}, written)

    def _written(self, expression: ast.expr) -> str:
        """An expression, followed by what the names in it, and in those, were assigned; each once."""
        found: dict[str, ast.expr] = {}
        pending = [expression]
        while pending:
            used = {node.id for node in ast.walk(pending.pop()) if isinstance(node, ast.Name)}
            new = {name: self._assigned[name] for name in sorted(used) if name in self._assigned and name not in found}
            found |= new
            pending += new.values()
        return " ".join(map(ast.unparse, [expression, *found.values()]))

    def _value(self, node: ast.expr) -> Value:
        value = self._compute(node)
        if any(size.bit_length() > _MAX_BITS for number in _numbers(value) for size in number.as_integer_ratio()):
            raise BadProgram("a number is too large")
        return value

    def _compute(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=bool() | str() as value):
                return value
            case ast.Constant(value=int() | float() as value):
                return Fraction(str(value))
            case ast.Name(id=name):
                if name not in self._names:
                    raise BadProgram(f"{name} has no value", f"{self._before}{name} = ")
                return self._names[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return values.negated(self._value(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return _operation(op, self._value(left), self._value(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._compare(op, self._value(left), self._value(right))
            case ast.BoolOp(op=op, values=parts):
                truths = [self._value(part) is True for part in parts]
                return all(truths) if isinstance(op, ast.And) else any(truths)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._value(body if self._value(test) is True else orelse)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._function(name, [self._value(argument) for argument in args])
        raise BadProgram("this is not understood")

    def _function(self, name: str, given: list[Value]) -> Value:
        match name, given:
            case ("distance", []):
                return _root(self._walk.squared_distance)
            case (_, [Fraction() as amount]) if name in _SECONDS:
                return Duration(amount * _SECONDS[name])
            case (_, [Fraction() as amount]) if name in _MONTHS and (amount * _MONTHS[name]).denominator == 1:
                return Duration(months=int(amount * _MONTHS[name]))
            case ("time", [str() as text]):
                return read_clock(text)
            case ("time", [Clock() | datetime() as value]):
                return value
            case ("date", [str() as text]):
                return _ENGLISH.named_date(text, self._now, nearest=True)
            case ("date", [date() as day]):
                return day.date() if isinstance(day, datetime) else day
            case ("convert", [amount, str() as unit, str() as target]) if isinstance(amount, Fraction | Quantity):
                if is_exchanged(unit, target):
                    raise NeedsRate("there are no exchange rates")
                number = amount.amount if isinstance(amount, Quantity) else amount
                return Quantity(_converted(number, unit, target), target)
            case ("time_in", [str() as place]):
                if _is_here(place):
                    return self._now
                as_here = timezone(self._now.utcoffset() or timedelta())
                return self._now.astimezone(zone_of(place)).replace(tzinfo=as_here)
            case ("convert_time", [Clock() as clock, str() as source, str() as target]):
                return self._moved(clock, source, target)
            case ("weekday", [date() as day]):
                return f"It's a {day:%A}"
            case ("is_leap_year", [Fraction() as year]):
                return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        if name in _FUNCTIONS and given:
            return _FUNCTIONS[name](given)
        raise BadProgram(f"{name} cannot be computed")

    def _compare(self, op: ast.cmpop, left: Value, right: Value) -> bool:
        """Compare two values. Beside a moment, a time of day is one of today."""
        if isinstance(left, datetime) and isinstance(right, Clock):
            right = self._today_at(right)
        elif isinstance(left, Clock) and isinstance(right, datetime):
            left = self._today_at(left)
        return _comparison(op, left, right)

    def _today_at(self, clock: Clock) -> datetime:
        """A time of day as a moment of today; midnight is its end."""
        start = datetime.combine(self._now.date(), time(), self._now.tzinfo)
        return start + timedelta(days=clock.days, minutes=clock.minutes or 1440)

    def _moved(self, clock: Clock, source: str, target: str) -> Clock:
        """A time of day in one place, as the clocks show it in another one."""
        here = self._now.replace(hour=clock.minutes // 60, minute=clock.minutes % 60, second=0, microsecond=0)
        start = here if _is_here(source) else here.replace(tzinfo=zone_of(source))
        end = start.astimezone(self._now.tzinfo if _is_here(target) else zone_of(target))
        return Clock(60 * end.hour + end.minute, clock.certain, (end.date() - start.date()).days)


def read_clock(text: str) -> Clock:
    """A time of day: "6:40", "6 pm", "18:30", "noon". Raises BadProgram."""
    plain = text.strip().lower().replace(".", "")
    if plain in _NAMED_CLOCKS:
        return Clock(_NAMED_CLOCKS[plain])
    match = _CLOCK.fullmatch(plain)
    if match is None or int(match[1]) > 23 or int(match[2] or 0) > 59:
        raise BadProgram(f"{text!r} is no time of day")
    hour, half = int(match[1]), match[3]
    if half and 1 <= hour <= 12:
        hour = hour % 12 + 12 * (half == "pm")
    return Clock(60 * hour + int(match[2] or 0), bool(half) or hour > 12 or hour == 0)


def plain(value: Value) -> Any:
    """A value as an argument: numbers and texts as they are, times and dates in ISO 8601, durations in seconds."""
    match value:
        case bool() | str():
            return value
        case Fraction():
            return int(value) if value.denominator == 1 else float(value)
        case Clock():
            half = "" if not value.certain else " pm" if value.minutes >= 720 else " am"
            return f"{value.minutes // 60 % 12 or 12}:{value.minutes % 60:02}{half}"
        case Duration() if not value.months:
            return float(value.seconds)
        case datetime() | date():
            return value.isoformat(timespec="minutes") if isinstance(value, datetime) else value.isoformat()
    raise BadProgram("this cannot be an argument")


def _is_here(place: str) -> bool:
    return place.strip().lower() in ("here", "local", "home", "now", "")


def _operation(op: ast.operator, left: Value, right: Value) -> Value:
    if (compute := _OPERATIONS.get(type(op))) is not None:
        return compute(left, right)
    match op, left, right:
        case (ast.FloorDiv(), Fraction(), Fraction()):
            return Fraction(left // right)
        case (ast.Mod(), Fraction(), Fraction()):
            return left % right
        case (ast.Pow(), Fraction(), Fraction()) if abs(right) <= _MAX_EXPONENT and abs(left) < 2**64:
            if right.denominator == 1:
                return left ** int(right)
            if left >= 0:
                return _fraction(float(left) ** float(right))
    raise BadProgram("these cannot be computed")


def _numbers(value: Value) -> Sequence[Fraction | int]:
    """The numbers of a value that have no limit of their own."""
    match value:
        case Fraction():
            return (value,)
        case Quantity():
            return (value.amount,)
        case Duration():
            return (value.seconds, value.months)
    return ()


def _comparison(op: ast.cmpop, left: Value, right: Value) -> bool:
    compare = _COMPARISONS.get(type(op))
    if compare is None:
        raise BadProgram("these cannot be compared")
    return bool(compare(*_comparable([left, right])))


def _comparable(given: Sequence[Value]) -> list[Any]:
    """What values of one kind are compared by. Raises BadProgram."""
    unit = next((value.unit for value in given if isinstance(value, Quantity)), "")
    zone = next((value.tzinfo for value in given if isinstance(value, datetime) and value.tzinfo), None)
    keys = [_key(value, unit, zone) for value in given]
    if len({kind for kind, _ in keys}) > 1:
        raise BadProgram("these cannot be compared")
    return [key for _, key in keys]


def _key(value: Value, unit: str, zone: tzinfo | None) -> tuple[type, Any]:
    """The kind of a value, and what it is compared by: quantities in one unit, moments in one zone."""
    match value:
        case Duration() if not value.months:
            return Duration, value.seconds
        case Fraction():
            return Fraction, value
        case Quantity():
            return Fraction, value.amount if value.unit == unit else _converted(value.amount, value.unit, unit)
        case Clock():
            return Clock, value.minutes + 24 * 60 * value.days
        case datetime():
            return datetime, value.replace(tzinfo=value.tzinfo or zone)
        case date():
            return date, date(value.year, value.month, value.day)
    raise BadProgram("this cannot be compared")


def _converted(amount: Fraction, unit: str, target: str) -> Fraction:
    return Fraction(convert(float(amount), unit, target)).limit_denominator(10**9)


def _fraction(value: float) -> Fraction:
    if not math.isfinite(value):
        raise BadProgram("it has no value")
    return Fraction(value).limit_denominator(10**12)


def _number(given: list[Value]) -> Fraction:
    if len(given) == 1 and isinstance(given[0], Fraction):
        return given[0]
    raise BadProgram("a number is missing")


def _first(given: list[Value], choose: Callable[[list[Any]], Any]) -> Value:
    """The least of some values, or the greatest."""
    keys = _comparable(given)
    return given[keys.index(choose(keys))]


def _rounded(given: list[Value]) -> Value:
    digits = _number(given[1:]) if len(given) == 2 else Fraction(0)
    if abs(digits) > _MAX_DIGITS:
        raise BadProgram("too many digits")
    return values.rounded(_number(given[:1]), int(digits))


_FUNCTIONS: dict[str, Callable[[list[Value]], Value]] = {
    "min": lambda given: _first(given, min),
    "max": lambda given: _first(given, max),
    "round": _rounded,
    "abs": lambda given: abs(_number(given)),
    "floor": lambda given: Fraction(math.floor(_number(given))),
    "ceil": lambda given: Fraction(math.ceil(_number(given))),
    "sqrt": lambda given: _root(_number(given)),
}


def _root(value: Fraction) -> Fraction:
    if value < 0:
        raise BadProgram("it has no root")
    above, below = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if above**2 == value.numerator and below**2 == value.denominator:
        return Fraction(above, below)
    return _fraction(math.sqrt(value))
