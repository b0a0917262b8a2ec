"""The built-in tool for arithmetic and conversions of units."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Annotated, Any

from pydantic import Field

from server.tools.function_tool import NO_RESULT, Caller, ServerTool, Spoken, function_tool, tool
from server.tools.when import digits_for_words

_MAX_EXPONENT, _MAX_DIGITS, _MAX_CHARACTERS = 1000, 15, 200
"""Limits of an expression: larger powers take long, and nobody wants to hear the digits."""

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sqrt": math.sqrt, "abs": abs, "round": round, "floor": math.floor, "ceil": math.ceil, "min": min, "max": max,
    "log": math.log10, "ln": math.log, "exp": math.exp, "sin": lambda x: math.sin(math.radians(x)),
    "cos": lambda x: math.cos(math.radians(x)), "tan": lambda x: math.tan(math.radians(x)), "cbrt": math.cbrt,
}  # fmt: skip
"""Angles are in degrees, as people speak of them."""

_CONSTANTS = {"pi": math.pi, "e": math.e}

_WORDS = (
    (r"(\d),(?=\d{3}\b)", r"\1"), (r"[×x](?=\s*\d)", "*"), (r"÷", "/"), (r"\bplus\b", "+"), (r"\bminus\b", "-"),
    (r"\btimes\b|\bmultiplied by\b", "*"), (r"\bdivided by\b|\bover\b", "/"), (r"\bto the power of\b|\^", "**"),
    (r"\bsquared\b", "**2"), (r"\bcubed\b", "**3"), (r"\bthe square root of\b|\bsquare root of\b|√", "sqrt "),
    (r"(\d+(?:\.\d+)?)\s*(?:%|percent\b)\s*(?:of|\*)", r"(\1/100)*"),
    (r"(\d+(?:\.\d+)?)\s*(?:%|percent\b)", r"(\1/100)"),
    (r"\bsqrt\s+\(?(\d+(?:\.\d+)?)\)?", r"sqrt(\1)"), (r"\bmod\b", "%"), (r"=\s*$", ""), (r"[$€£]", ""),
)  # fmt: skip

_CONVERSION = re.compile(r"^(?:convert\s+)?(.*?\S)\s+(?:in|to|into|as|=)\s+(?:an?\s+)?([^\d]+?)[?.]?$", re.IGNORECASE)
_HOW_MANY = re.compile(
    r"^.*?\bhow (?:many|much) ([a-z ]+?)(?: (?:are|is|in|make|or|there|do|get|i|from))* (\d.*?)[?.]?$", re.IGNORECASE
)
_QUESTION = r"^.*?\b(?:what(?:'s| is| are)|how much (?:is|are)|calculate|compute|work out|tell me)\s+|\bplease\b"
_ABOUT = r"(?i),? (roughly|about|approximately|exactly)\b"
_NUMBER = (
    r"(\d[\d.,]*|\b(two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(thir|four|fif|six|seven|eigh|nine)teen|"
    r"(twen|thir|for|fif|six|seven|eigh|nine)ty|hundred|thousand|million)\b)"
)
_ABOUT_NUMBERS = (
    rf"^(?!.*\b(remind|remember|write|note|timer|alarm)\b).*({_NUMBER}.*\b(plus|minus|times|divided|multiplied|by|of|and)\b"
    rf".*{_NUMBER}|{_NUMBER}\s*[-+*/x×÷^]\s*{_NUMBER}|%|\bpercent\b|\bsquare root\b|\b(squared|cubed)\b|"
    rf"\bhow (many|much)\b.*{_NUMBER}|\b(convert|what is|what's)\b.*{_NUMBER}.*\b(in|to|into)\b)"
)
"""What people say who want something calculated: two numbers and an operation, or a quantity in another unit."""
_QUANTITY = re.compile(r"^(?:an?\b|(-?[\d.,]+(?:e-?\d+)?))?\s*(?:degrees?\s+)?(.+)$", re.IGNORECASE)
_UNITS = {
    "fahrenheit": "degF", "celsius": "degC", "centigrade": "degC", "f": "degF", "c": "degC", "°f": "degF",
    "°c": "degC", "kelvin": "kelvin", "pounds": "pound", "lbs": "pound", "lb": "pound", "ounces": "ounce",
    "oz": "ounce", "stones": "stone", "kilos": "kilogram", "kilo": "kilogram", "mph": "mile / hour",
    "kph": "kilometer / hour", "km/h": "kilometer / hour", "miles per hour": "mile / hour",
    "kilometers per hour": "kilometer / hour",
    "kilometres per hour": "kilometer / hour", "feet": "foot", "inches": "inch", "square feet": "foot ** 2",
    "square meters": "meter ** 2", "square metres": "meter ** 2", "square miles": "mile ** 2",
    "square kilometers": "kilometer ** 2", "cubic meters": "meter ** 3", "cups": "cup", "fluid ounces": "fluid_ounce",
    "tablespoons": "tablespoon", "teaspoons": "teaspoon", "nautical miles": "nautical_mile", "horsepower": "horsepower",
    "calories": "calorie", "kilocalories": "kilocalorie", "centuries": "century", "knots": "knot", "tons": "ton",
    "tonnes": "metric_ton", "megabytes": "megabyte", "gigabytes": "gigabyte", "terabytes": "terabyte",
}  # fmt: skip
"""Names that pint reads differently, or not at all: `C` is a coulomb to it."""


class BadExpression(ValueError):
    """Not an expression that can be computed."""


def evaluate(expression: str) -> float:
    """The value of an arithmetic expression, in digits or with the operators' names. Raises BadExpression."""
    text = expression.lower().strip().rstrip("?.")
    for pattern, replacement in _WORDS:
        text = re.sub(pattern, replacement, text)
    if len(text) > _MAX_CHARACTERS:
        raise BadExpression(f"The expression has more than {_MAX_CHARACTERS} characters.")
    try:
        value = _value(ast.parse(text.strip(), mode="eval").body)
        return float(value)
    except ZeroDivisionError:
        raise BadExpression("Division by zero has no result.") from None
    except (SyntaxError, TypeError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        if isinstance(error, BadExpression):
            raise
        raise BadExpression(f"{expression!r} cannot be computed: write it with digits, such as 12 * (3 + 4).") from None


def _value(node: ast.AST) -> Any:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(operand))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            base, exponent = _value(left), _value(right)
            if abs(exponent) > _MAX_EXPONENT:
                raise BadExpression(f"Exponents above {_MAX_EXPONENT} are too large.")
            return float(base) ** exponent
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left), _value(right))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*map(_value, args))
    raise BadExpression("Only numbers, + - * / % **, parentheses and functions such as sqrt can be computed.")


@cache
def load_units() -> Any:
    """The registry of units. Takes half a second the first time."""
    from pint import UnitRegistry

    return UnitRegistry(cache_folder=":auto:")


def convert(value: float, source: str, target: str) -> float:
    """A quantity in another unit. Raises BadExpression."""
    import pint

    registry = load_units()
    try:
        return float(registry.Quantity(value, _unit(source)).to(_unit(target)).magnitude)
    except pint.DimensionalityError:
        raise BadExpression(f"{source} cannot be converted to {target}: they measure different things.") from None
    except (pint.UndefinedUnitError, AttributeError, TypeError, ValueError):
        raise BadExpression(f"{source} or {target} is not a unit that is known.") from None


def _unit(name: str) -> str:
    plain = " ".join(name.lower().replace("degrees", "").replace("degree", "").split())
    return _UNITS.get(plain, plain.replace(" ", "_"))


def spoken_number(value: float) -> str:
    """A number as it is said: whole numbers in full, others with up to four significant decimals."""
    if not math.isfinite(value):
        return "infinity"
    if value == round(value) and abs(value) < 10**_MAX_DIGITS:
        return f"{int(value):,}"
    if abs(value) >= 10**_MAX_DIGITS or 0 < abs(value) < 1e-4:
        mantissa, exponent = f"{value:.3e}".split("e")
        return f"{float(mantissa):g} times ten to the power of {int(exponent)}"
    decimals = max(0, 3 - math.floor(math.log10(abs(value)))) if abs(value) < 1 else 2
    return f"{value:,.{decimals}f}".rstrip("0").rstrip(".")


@tool(read_only=True, said=_ABOUT_NUMBERS)
def calculate(expression: Annotated[str, Field(max_length=40)], caller: Caller) -> Spoken | str:
    """Do arithmetic or convert units."""
    said = re.sub(r"\b(\d+) and a half\b", r"\1.5", digits_for_words(caller.said))
    text = expression if _numbers(expression) <= _numbers(said) else said
    try:
        return Spoken(result(text))
    except BadExpression:
        spoken = re.sub(_QUESTION, "", re.sub(_ABOUT, "", said), flags=re.IGNORECASE)
        with suppress(BadExpression):
            return Spoken(result(spoken))
        return NO_RESULT


def result(expression: str) -> str:
    """What to say about an expression or a conversion. Raises BadExpression."""
    if (how_many := _HOW_MANY.match(expression.strip())) is not None:
        expression = f"{how_many[2]} in {how_many[1]}"
    if (conversion := _CONVERSION.match(expression.strip())) and (quantity := _QUANTITY.match(conversion[1])):
        amount, unit = quantity[1], quantity[2]
        value = float(amount.replace(",", "")) if amount else 1.0
        converted = convert(value, unit, conversion[2])
        return f"{spoken_number(value)} {unit} is {spoken_number(converted)} {conversion[2].strip()}."
    return f"The result is {spoken_number(evaluate(expression))}."


def _numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+", text.replace(",", "")))


def calculator_tools() -> list[ServerTool]:
    """The tool."""
    return [function_tool(calculate)]
