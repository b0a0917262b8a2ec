"""Units and their conversion (pint)."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

_NAMES = {
    "fahrenheit": "degF", "celsius": "degC", "centigrade": "degC", "f": "degF", "c": "degC", "°f": "degF",
    "°c": "degC", "kelvin": "kelvin", "pounds": "pound", "lbs": "pound", "lb": "pound", "ounces": "ounce",
    "oz": "ounce", "stones": "stone", "kilos": "kilogram", "kilo": "kilogram", "mph": "mile / hour",
    "kph": "kilometer / hour", "km/h": "kilometer / hour", "feet": "foot", "inches": "inch", "cups": "cup",
    "fluid ounces": "fluid_ounce", "tablespoons": "tablespoon", "teaspoons": "teaspoon",
    "nautical miles": "nautical_mile", "horsepower": "horsepower", "calories": "calorie",
    "kilocalories": "kilocalorie", "centuries": "century", "knots": "knot", "tons": "ton", "tonnes": "metric_ton",
    "metric tons": "metric_ton", "megabytes": "megabyte", "gigabytes": "gigabyte", "terabytes": "terabyte",
    "dollar": "us_dollar", "cent": "us_cent", "dime": "us_dime", "nickel": "us_nickel", "penny": "us_cent",
    "coin quarter": "us_quarter", "decade": "ten_years", "decades": "ten_years",
}  # fmt: skip
"""Names that pint reads differently, or not at all: `C` is a coulomb to it."""

_DEFINITIONS = (
    "us_dollar = [us_currency]", "us_cent = us_dollar / 100", "us_nickel = us_dollar / 20", "us_dime = us_dollar / 10",
    "us_quarter = us_dollar / 4", "ten_years = 10 * year",
)  # fmt: skip
"""Units that pint lacks. Its decade is a ratio."""

_POWERS = {"square": 2, "cubic": 3}


class UnknownConversion(ValueError):
    """Not units of which one can be converted to the other."""


@cache
def load_units() -> Any:
    """The registry of units. Takes half a second the first time."""
    from pint import UnitRegistry

    registry: Any = UnitRegistry(cache_folder=":auto:")
    for definition in _DEFINITIONS:
        registry.define(definition)
    return registry


def convert(value: float, source: str, target: str) -> float:
    """A quantity in another unit. Raises UnknownConversion."""
    import pint

    registry = load_units()
    try:
        return float(registry.Quantity(value, _pint_name(source)).to(_pint_name(target)).magnitude)
    except pint.DimensionalityError:
        message = f"{source} cannot be converted to {target}: they measure different things."
        raise UnknownConversion(message) from None
    except (pint.UndefinedUnitError, AttributeError, TypeError, ValueError):
        raise UnknownConversion(f"{source} or {target} is not a unit that is known.") from None


def _pint_name(name: str) -> str:
    plain = " ".join(re.sub(r"\bdegrees?\b|_", " ", name.lower()).split())
    if plain in _NAMES:
        return _NAMES[plain]
    if " per " in plain:
        above, _, below = plain.partition(" per ")
        return f"({_pint_name(above)}) / ({_pint_name(below)})"
    kind, _, length = plain.partition(" ")
    if kind in _POWERS and length:
        return f"({_pint_name(length)}) ** {_POWERS[kind]}"
    return plain.replace(" ", "_")
