"""Numbers and amounts as they are said."""

from __future__ import annotations

import math
from fractions import Fraction

from agent.tools.sums.answer import Answer
from agent.tools.sums.quantities import Quantity, unit_name

_MAX_DIGITS = 15


def spoken_number(value: float | Fraction) -> str:
    """A number as it is said: whole numbers in full, others with up to four significant decimals."""
    if not math.isfinite(value):
        return "infinity"
    if value < 0:
        return f"minus {spoken_number(-value)}"
    if value == round(value) and abs(value) < 10**_MAX_DIGITS:
        return f"{int(value):,}"
    value = float(value)
    if abs(value) >= 10**_MAX_DIGITS or 0 < abs(value) < 1e-4:
        mantissa, exponent = f"{value:.3e}".split("e")
        return f"{float(mantissa):g} times ten to the power of {int(exponent)}"
    decimals = max(0, 3 - math.floor(math.log10(abs(value)))) if abs(value) < 1 else 2
    return f"{value:,.{decimals}f}".rstrip("0").rstrip(".")


def spoken_quantity(quantity: Quantity) -> str:
    """ "2.5 cups"."""
    return f"{spoken_number(quantity.amount)} {unit_name(quantity.unit, quantity.amount)}"


def money_answer(value: Fraction, currency: str) -> Answer:
    """An amount of a currency, or a mere number if that is empty."""
    if currency == "cent":
        value, currency = value / 100, "dollar"
    return Answer(f"That's {spoken_money(value, currency) if currency else spoken_number(value)}.", (), value)


def spoken_money(value: Fraction, currency: str) -> str:
    """ "9 dollars", "11.16 dollars"."""
    number = spoken_number(value) if value.denominator == 1 else f"{float(value):,.2f}"
    return f"{number} {currency if value == 1 else f'{currency}s'}"
