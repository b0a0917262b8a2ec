"""Checks the arithmetic in what a language model writes: small models add up 11 + 20 + 7 to 48, again and again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from agent.program.evaluator import run_program
from agent.program.values import BadProgram, local_time, rounded

_OPERATORS = "+-*/×÷"
_DIGITS = "0123456789"
_EXPRESSION = f"{_DIGITS}.,() ${_OPERATORS}"
"""Characters of the left side of an equation."""

_PLAIN: Mapping[str, str] = {
    "\\times": "*", "\\cdot": "*", "\\div": "/", "\\$": "$", "×": "*", "·": "*", "÷": "/", "−": "-", "⋅": "*", "∗": "*",
    "∕": "/",
}  # fmt: skip
"""Operators and signs in other notations."""

_NEUTRAL_WORDS = frozenset("is are was were be so then get gets have has had".split())
"""Words before an expression. After another one it may be a part of something else: "10% of 200 + 50"."""

_GOES_ON = (
    "(", ":", "^", "!", "%", "\\%", "x ", "percent", "per cent", "dozen", "hundred", "thousand", "million", "billion",
    *_OPERATORS, *_PLAIN,
)  # fmt: skip
"""What follows a number that is not all of the right side."""

_NEUTRAL_ENDS = ",.;:?!=\n$€£([\"'“”‘’>•→⇒"
"""Characters before an expression that do not belong to it."""

_FACTORS = frozenset([7, 12, 24, 52, 60, 100, 168, 365, 1000, 1440, 3600])
"""Of units: 60 + 60 is 2, if these are hours."""

_UNITS = frozenset(
    "second minute hour day week month year dollar euro pound meter metre kilometer kilometre km m kg kilogram gram "
    "liter litre feet foot ft yard inche inch mile".split()
)

_SMALL, _TINY = Fraction(1, 1000), Fraction(1, 10**12)
"""Numbers below these are written with all their decimals, or as a power of ten."""

_MAX_LEFT, _MAX_RIGHT = 120, 40
"""Characters of an equation that are looked at, and those from its `=` to what follows its right side, at most."""


def corrected(text: str, start: int = 0) -> str | None:
    """The text up to the first equation whose right side is wrong, with the right one; None if there is none.

    An equation is an expression of numbers, `=`, and a number that something follows. What is not understood is left as
    it is. A right side may be rounded or cut off.

    Args:
        start: equations that end before it have been checked.
    """
    end = text.find("=", max(0, start - _MAX_RIGHT))
    while end >= 0:
        value, length = _left_side(text[:end]), _number_length(text, end + 1)
        right, after = text[end + 1 : end + 1 + length], text[end + 1 + length :][:_MAX_RIGHT]
        if value is not None and length and not (_is_close(value, right) or _has_other_unit(value, right, after)):
            return f"{text[: end + 1]} {written(value)}"
        end = text.find("=", end + 1)
    return None


def _left_side(text: str) -> Fraction | None:
    """The value of the expression at the end of a text; None if there is none that is certain."""
    seen = text[-_MAX_LEFT:]
    for other, plain in _PLAIN.items():
        seen = seen.replace(other, plain)
    seen = re.sub(r"(?<=[\d)]) x (?=[\d($])", " * ", seen)
    before = seen.rstrip(_EXPRESSION)
    expression = seen[len(before) :]
    if not before and len(text) > _MAX_LEFT:
        return None
    for separator in (", ", ". ", " (", "  "):
        if separator in expression and not (separator == " (" and ")" in expression):
            before, _, expression = expression.rpartition(separator)
    if _belongs_to(before, expression):
        return None
    if re.search(r"\d,(?!\d{3}\b)|\d\.\d{3}\b", expression):  # "1,5" and "1.200" may be written as in other languages
        return None
    expression = expression.strip(" $").replace("$", "").replace(",", "")
    if expression[:1] in _OPERATORS or not any(operator in expression for operator in _OPERATORS):
        return None
    try:
        value = run_program(f"answer = {expression}", local_time(), {}).answers[0][0]
    except BadProgram:
        return None
    return value if isinstance(value, Fraction) else None


def _belongs_to(before: str, expression: str) -> bool:
    """Whether an expression is, or may be, a part of what stands before it."""
    end = before.rstrip(" ")[-1:]
    if end.isalpha():
        return expression[:1] != " " or before.split()[-1].lower() not in _NEUTRAL_WORDS
    if end == ":":
        return expression[:1] != " " or before.rstrip(" :")[-1:].isdigit()
    return bool(end) and end not in _NEUTRAL_ENDS


def _number_length(text: str, start: int) -> int:
    """Characters up to the end of the number there; 0 if there is none, it may go on, or an expression goes on."""
    rest = text[start:]
    number = rest.lstrip(" $").removeprefix("-")
    length = len(rest) - len(number.lstrip(f"{_DIGITS}.,"))
    after = rest[length:].lstrip(" ")
    if not number[:1].isdigit() or rest[length : length + 1].isalpha():
        return 0
    if after.startswith(_GOES_ON) or any(one.startswith(after) for one in _GOES_ON):
        return 0
    return length


def _is_close(value: Fraction, right: str) -> bool:
    digits = _digits(right)
    try:
        said = Fraction(digits)
    except ValueError:
        return True
    decimals = len(digits.partition(".")[2])
    if value.denominator == 1 and not decimals:
        return said == value
    return abs(value - said) < Fraction(1, 10**decimals)


def _digits(right: str) -> str:
    return right.strip(" $").rstrip(".,").replace(",", "")


def _has_other_unit(value: Fraction, right: str, after: str) -> bool:
    """Whether the right side may be the value in another unit, which follows, or as a time in the afternoon."""
    said, unit = Fraction(_digits(right)), after.lstrip(" ").partition(" ")[0].lower()
    if unit.startswith(("pm", "p.m")):
        return said == value - 12
    return bool(said) and value / said in _FACTORS and unit.rstrip("s.,;:!?") in _UNITS


def written(value: Fraction) -> str:
    """A number as steps and votes write it: with two decimals at most, or four below one, and more of a small one."""
    if 0 < abs(value) < _SMALL:
        return f"{float(value):.15f}".rstrip("0") if abs(value) > _TINY else str(float(value))
    number = rounded(value, 2 if abs(value) >= 1 else 4)
    return str(number) if number.denominator == 1 else str(float(number))
