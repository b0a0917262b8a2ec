"""The built-in tool for arithmetic and conversions of units."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import Field

from agent.matched_text import for_patterns
from agent.tools.function_tool import NO_RESULT, Caller, ServerTool, Spoken, function_tool, tool
from agent.tools.sums.follow_ups import answer_turns
from agent.tools.sums.spoken import spoken_number
from agent.tools.when import digits_for_words

_MAX_EXPONENT, _MAX_CHARACTERS = 1000, 200
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

_WORDS = tuple((re.compile(pattern), replacement) for pattern, replacement in (
    (r"(\d),(?=\d{3}\b)", r"\1"), (r"[×x](?= ?\d)", "*"), (r"÷", "/"), (r"\bplus\b", "+"), (r"\bminus\b", "-"),
    (r"\btimes\b|\bmultiplied by\b", "*"), (r"\bdivided by\b|\bover\b", "/"), (r"\bto the power of\b|\^", "**"),
    (r"\bsquared\b", "**2"), (r"\bcubed\b", "**3"), (r"\bthe square root of\b|\bsquare root of\b|√", "sqrt "),
    (r"(?<!\d)(\d+(?:\.\d+)?) ?(?:%|percent\b) ?(?:of|\*)", r"(\1/100)*"),
    (r"(?<!\d)(\d+(?:\.\d+)?) ?(?:%|percent\b)", r"(\1/100)"),
    (r"\bsqrt +\(?(\d+(?:\.\d+)?)\)?", r"sqrt(\1)"), (r"\bmod\b", "%"), (r"= ?$", ""), (r"[$€£]", ""),
))  # fmt: skip

_NUMBER = (
    r"((?<!\d)\d[\d.,]*+|\b(two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(thir|four|fif|six|seven|eigh|nine)teen|"
    r"(twen|thir|for|fif|six|seven|eigh|nine)ty|hundred|thousand|million)\b)"
)
_OPERATION = r"\b(plus|minus|times|divided|multiplied)\b"
_ABOUT_NUMBERS = (
    rf"^(?!.*\b(remind|remember|write|note|timer|alarm)\b)(?:(?>.*?{_NUMBER})(?>.*?{_OPERATION}).*{_NUMBER}|"
    rf".*(?:{_NUMBER} ?[+*x×÷^] ?{_NUMBER}|{_NUMBER} [-/] {_NUMBER}|{_NUMBER} ?(%|percent\b) (of|off)\b|"
    rf"\b(square|cube) root of\b|{_NUMBER} (squared|cubed)\b)|"
    rf"(?>.*?\b(what|what's|how much|calculate|compute)\b).*(?<![-/\d])\d[\d.,]*+ ?[-/] ?\d[\d.,]*+(?![-/])|"
    rf"(?>.*?\b(multiply|divide|subtract|convert|sine|cosine|tangent|logarithm)\b).*{_NUMBER})"
)
"""What people say who want something calculated that is not certain: numbers and an operation. Between digits, a
hyphen or a slash is one only in a question: transcripts have them in telephone numbers, ranges and dates, too."""


class BadExpression(ValueError):
    """Not an expression that can be computed."""


def evaluate(expression: str) -> float:
    """The value of an arithmetic expression, in digits or with the operators' names. Raises BadExpression."""
    text = for_patterns(expression.lower()).rstrip("?.")
    for pattern, replacement in _WORDS:
        text = pattern.sub(replacement, text)
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


def certain_sum(turns: Sequence[tuple[str, str]]) -> tuple[dict[str, Any], str] | None:
    """The call for a question of which all words are understood; see `ServerTool.certain`."""
    answer = answer_turns(turns)
    if answer is None:
        return None
    said = " ".join(answer.tokens)
    alone = answer_turns([(said, "")])
    return ({"expression": said}, said) if alone is not None and alone.speech == answer.speech else None


@tool(read_only=True, said=_ABOUT_NUMBERS, certain=certain_sum)
def calculate(expression: Annotated[str, Field(json_schema_extra={"maxLength": 40})], caller: Caller) -> Spoken | str:
    """Do arithmetic or convert units."""
    # The user's words count where they are understood. An expression of the model counts if its numbers are theirs, or
    # those of an earlier result.
    if (answer := answer_turns([(caller.said, "")])) is not None:
        return Spoken(answer.speech)
    numbers, said = _numbers(expression), _numbers(digits_for_words(caller.said))
    if numbers != said and not (caller.known and said <= numbers <= said | _numbers(caller.known)):
        return NO_RESULT
    try:
        return Spoken(f"That's {spoken_number(evaluate(expression))}.")
    except BadExpression:
        return NO_RESULT


def _numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+", text.replace(",", "")))


def calculator_tools() -> list[ServerTool]:
    """The tool."""
    return [function_tool(calculate)]
