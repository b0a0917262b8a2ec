"""Units and their conversion (pint)."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from agent.words.english.number_words import plural_of, singular_of
from agent.words.english.written_forms import UNITS

_NAMES = {
    "centigrade": "degC", "c": "degC", "°c": "degC", "f": "degF", "°f": "degF", "kilo": "kilogram", "kilos": "kilogram",
    "mph": "mile / hour", "kph": "kilometer / hour", "dollar": "us_dollar", "cent": "us_cent", "penny": "us_cent",
    "nickel": "us_nickel", "dime": "us_dime", "coin quarter": "us_quarter",
    "decade": "ten_years", "decades": "ten_years", "acre": "plain_acre", "acres": "plain_acre",
}  # fmt: skip
"""Names that pint reads differently, or not at all: `C` is a coulomb to it, and its acre is the surveyors'."""

_DEFINITIONS = (
    "us_dollar = [us_currency]", "us_cent = us_dollar / 100", "us_nickel = us_dollar / 20", "us_dime = us_dollar / 10",
    "us_quarter = us_dollar / 4", "ten_years = 10 * year", "plain_acre = 4840 * yard ** 2",
)  # fmt: skip
"""Units that pint lacks. Its decade is a ratio."""

_CURRENCIES = frozenset(
    """
dollar euro pound yen franc peso rupee yuan renminbi krona krone kronor kroner won real ruble rouble lira zloty forint
shekel dirham ringgit baht rand rupiah dong usd eur gbp jpy chf cad aud inr cny mxn sek nok dkk pln krw brl try bitcoin
""".split()
)

_POWERS = {"square": 2, "cubic": 3}

_DEGREES = {
    "celsius": "degree Celsius", "centigrade": "degree Celsius", "c": "degree Celsius", "°c": "degree Celsius",
    "fahrenheit": "degree Fahrenheit", "f": "degree Fahrenheit", "°f": "degree Fahrenheit",
}  # fmt: skip

_KNOWN = frozenset(
    """
millimeter mm centimeter cm meter m metre kilometer km kilometre inch foot ft yard mile milligram mg gram g gramme
kilogram kg kilo ounce oz pound lb stone ton tonne milliliter ml millilitre centiliter centilitre deciliter decilitre
liter l litre teaspoon tsp tablespoon tbsp cup pint quart gallon celsius centigrade fahrenheit kelvin millisecond second
minute hour day week year decade century byte kilobyte megabyte gigabyte terabyte acre hectare mph kph knot joule
kilojoule kilocalorie watt kilowatt horsepower
""".split()
)
_NAME = re.compile(r"[^\W\d_][^\W\d_]*(?:[ _/°][^\W\d_]+){0,5}|°[CF]", re.IGNORECASE)
"""What a name of a unit consists of: words."""


@cache
def load_units() -> Any:
    """The registry of units. Takes half a second the first time. It is not read from pint's cache (0.2 s faster): that
    names files of the environment it was written in, which may be gone."""
    from pint import UnitRegistry

    registry: Any = UnitRegistry()
    for definition in _DEFINITIONS:
        registry.define(definition)
    return registry


def convert(value: float, source: str, target: str) -> float:
    """A quantity in another unit. Raises ValueError if the one cannot be converted to the other."""
    import pint

    for name in (source, target):  # pint computes what is in a name
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:40]!r} is not a unit that is known.")
    registry = load_units()
    try:
        return float(registry.Quantity(value, _pint_name(source)).to(_pint_name(target)).magnitude)
    except pint.DimensionalityError:
        raise ValueError(f"{source} cannot be converted to {target}: they measure different things.") from None
    except (pint.UndefinedUnitError, AttributeError, TypeError, ValueError):
        raise ValueError(f"{source} or {target} is not a unit that is known.") from None


def is_exchanged(source: str, target: str) -> bool:
    """Whether a conversion needs an exchange rate: both are currencies, and not the same one. A pound also weighs."""
    names = [{singular_of(word) for word in re.findall(r"[a-z]+", name.lower())} - {"us"} for name in (source, target)]
    return all(name & _CURRENCIES and "per" not in name for name in names) and names[0] != names[1]


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


def unit_name(unit: str, *, plural: bool) -> str:
    """A unit as people say it after an amount."""
    plain = re.sub(r"^degrees? ", "", " ".join(unit.lower().replace("_", " ").split()))
    if " per " in plain:
        first, _, rest = plain.partition(" per ")
        return f"{unit_name(first, plural=plural)} per {rest}"
    kind, _, length = plain.partition(" ")
    if kind in _POWERS and length:
        return f"{kind} {unit_name(length, plural=plural)}"
    before, space, last = plain.rpartition(" ")
    one = _DEGREES.get(plain) or UNITS.get(plain) or f"{before}{space}{singular_of(last)}"
    return plural_of(one) if plural else one


def is_known_unit(name: str) -> bool:
    """Whether a name is certainly one of a unit: pint takes many a word for one. "Calorie" is not, as people mean a
    thousand of them by it."""
    words = re.sub(r"\b(?:degrees?|fluid|nautical|metric|square|cubic)\b", " ", name.lower()).split()
    parts = " ".join(words).split(" per ")
    return all(" ".join(part.split()) in _KNOWN or singular_of(part.strip()) in _KNOWN for part in parts)
