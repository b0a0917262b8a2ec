"""Checks the arithmetic in what a language model writes: small models add up 11 + 20 + 7 to 48, again and again."""

from __future__ import annotations

from fractions import Fraction

from agent.program.evaluator import run_program
from agent.program.values import BadProgram, local_time, rounded

_OPERATORS = "+-*/×÷"
_DIGITS = "0123456789"
_EXPRESSION = f"{_DIGITS}.,() ${_OPERATORS}"
"""Characters of the left side of an equation."""

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
        value, length = _left_side(text[max(0, end - _MAX_LEFT) : end]), _number_length(text, end + 1)
        if value is not None and length and not _is_close(value, text[end + 1 : end + 1 + length]):
            return f"{text[: end + 1]} {written(value)}"
        end = text.find("=", end + 1)
    return None


def _left_side(text: str) -> Fraction | None:
    """The value of the expression at the end of a text; None if there is none that is certain."""
    start = len(text.rstrip(_EXPRESSION))
    before, expression = text[:start], text[start:]
    for separator in (", ", ". ", " (", "  "):
        if separator in expression and not (separator == " (" and ")" in expression):
            before, expression = "", expression.rpartition(separator)[2]
    expression = expression.strip(" $").replace("×", "*").replace("÷", "/").replace("$", "").replace(",", "")
    touches = bool(before) and (before[-1].isalnum() or before[-1] in "%:^_}")
    if touches and text[start : start + 1] != " ":
        return None
    if expression[:1] in _OPERATORS or not any(operator in expression for operator in _OPERATORS):
        return None
    try:
        value = run_program(f"answer = {expression}", local_time(), {}).answers[0][0]
    except BadProgram:
        return None
    return value if isinstance(value, Fraction) else None


def _number_length(text: str, start: int) -> int:
    """Characters up to the end of the number there; 0 if there is none, it may go on, or an expression goes on."""
    rest = text[start:]
    number = rest.lstrip(" $").removeprefix("-")
    length = len(rest) - len(number.lstrip(f"{_DIGITS}.,"))
    after = text[start + length :]
    if not number[:1].isdigit() or not after or after.lstrip(" ")[:1] in ("", "(", ":", *_OPERATORS):
        return 0
    return length


def _is_close(value: Fraction, right: str) -> bool:
    digits = right.strip(" $").rstrip(".,").replace(",", "")
    try:
        said = Fraction(digits)
    except ValueError:
        return True
    decimals = len(digits.partition(".")[2])
    if value.denominator == 1 and not decimals:
        return said == value
    return abs(value - said) < Fraction(1, 10**decimals)


def written(value: Fraction) -> str:
    """A number as steps and votes write it: with two decimals at most, or four below one."""
    number = rounded(value, 2 if abs(value) >= 1 else 4)
    return str(number) if number.denominator == 1 else str(float(number))
