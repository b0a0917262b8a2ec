"""Quantities in the user's words, such as "five foot eleven" and "half a liter", and their conversion (pint)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from agent.tools.sums.words import as_number
from agent.tools.units import UnknownConversion, convert

_UNIT_NAMES = """
millimeter mm; centimeter cm; meter m metre; kilometer km kilometre k; inch inches; foot feet ft; yard; mile;
nautical_mile; milligram mg; gram g gramme; kilogram kg kilo; ounce oz; pound lb lbs; stone stones; ton; metric_ton
tonne; milliliter ml millilitre; centiliter cl centilitre; deciliter dl decilitre; liter l litre; teaspoon tsp;
tablespoon tbsp; fluid_ounce; cup; pint; quart; gallon; celsius centigrade c; fahrenheit f; kelvin; millisecond;
second; minute; hour; day; week; month; year; decade; century centuries; byte; kilobyte kb; megabyte mb; gigabyte gb;
terabyte tb; acre; hectare; square_meter; square_foot; square_kilometer; square_mile; square_yard; square_inch;
cubic_meter; cubic_foot; mile_per_hour mph; kilometer_per_hour kph; meter_per_second; foot_per_second; knot; joule;
kilojoule; calorie; kilocalorie; watt; kilowatt; horsepower; degree; dollar; cent; dime; nickel; penny pennies;
coin_quarter
"""
_PLURALS = {"inch": "inches", "foot": "feet", "century": "centuries", "penny": "pennies", "stone": "stone",
            "horsepower": "horsepower", "coin_quarter": "quarters", "celsius": "degrees Celsius", "kelvin": "kelvin",
            "fahrenheit": "degrees Fahrenheit", "square_foot": "square feet", "cubic_foot": "cubic feet",
            "square_inch": "square inches"}  # fmt: skip
_TEMPERATURES = ("celsius", "fahrenheit", "kelvin")
_CALENDAR = ("month", "year", "decade", "century")
"""Units of time that have no exact number of days: a year has 365 or 366."""


def _spellings() -> dict[tuple[str, ...], str]:
    spellings: dict[tuple[str, ...], str] = {}
    for entry in _UNIT_NAMES.replace("\n", " ").split(";"):
        name, *others = entry.split()
        plain = name.replace("_", " ")
        for spelling in (plain, *others):
            words = spelling.split()
            plural = _PLURALS.get(name, f"{plain}s").split() if spelling == plain else [*words[:-1], f"{words[-1]}s"]
            spellings[tuple(words)] = name
            spellings[tuple(plural)] = name
    for distance in ("mile", "kilometer", "kilometre"):
        for ending in ("per hour", "an hour", "a hour"):
            for word in (distance, f"{distance}s"):
                spellings[(word, *ending.split())] = f"{distance.replace('tre', 'ter')}_per_hour"
    for kind in ("square", "cubic"):
        for length in ("meter", "kilometer", "mile", "yard", "inch", "foot"):
            if (kind, length) in spellings:
                for word in (f"{length}s", length.replace("ter", "tre"), f"{length}s".replace("ter", "tre")):
                    spellings[kind, word] = f"{kind}_{length}"
    spellings[("feet", "per", "second")] = "foot_per_second"
    spellings[("meters", "per", "second")] = spellings[("metres", "per", "second")] = "meter_per_second"
    spellings[("quarters",)] = "coin_quarter"
    return spellings


_SPELLINGS = _spellings()
_LONGEST = max(map(len, _SPELLINGS))


@dataclass(frozen=True)
class Quantity:
    """An amount in a unit.

    Attributes:
        unit: its name, such as `kilometer_per_hour`.
    """

    amount: Fraction
    unit: str

    def to(self, unit: str) -> Quantity | None:
        """The same in another unit; None if the two cannot be converted exactly."""
        if self.unit == unit:
            return self
        if (self.unit in _CALENDAR) != (unit in _CALENDAR):
            return None
        if self.unit == "ounce" and unit in _VOLUMES:
            return Quantity(self.amount, "fluid_ounce").to(unit)
        if unit == "ounce" and self.unit in _VOLUMES:
            unit = "fluid_ounce"
        try:
            return Quantity(Fraction(convert(float(self.amount), self.unit, unit)).limit_denominator(10**9), unit)
        except UnknownConversion:
            return None


_VOLUMES = tuple("milliliter centiliter deciliter liter teaspoon tablespoon cup pint quart gallon".split())
"""What ounces are converted to and from as fluid ounces."""


def unit_name(unit: str, amount: Fraction | float = 2) -> str:
    """A unit as people say it after an amount."""
    plain = unit.replace("_", " ").replace("coin ", "")
    if unit in _TEMPERATURES:
        return _PLURALS[unit]
    if abs(amount) == 1:
        return plain
    if " per " in plain:
        first, _, rest = plain.partition(" per ")
        return f"{_PLURALS.get(first, f'{first}s')} per {rest}"
    return _PLURALS.get(unit, f"{plain}s")


def take_unit(tokens: Sequence[str], at: int) -> tuple[str, int]:
    """The unit that begins at a token, and where it ends; empty if none does."""
    if tokens[at : at + 1] in (["degrees"], ["degree"]) and (named := take_unit(tokens, at + 1))[0] in _TEMPERATURES:
        return named
    for length in range(min(_LONGEST, len(tokens) - at), 0, -1):
        if (unit := _SPELLINGS.get(tuple(tokens[at : at + length]))) is not None:
            return unit, at + length
    return "", at


def read_unit(tokens: Sequence[str]) -> str:
    """The unit that all of the tokens are; empty if they are none."""
    if tokens[:1] in (["a"], ["an"], ["the"]):
        tokens = tokens[1:]
    unit, end = take_unit(tokens, 0)
    return unit if unit and end == len(tokens) else ""


def read_quantity(tokens: Sequence[str]) -> Quantity | None:
    """The quantity that all of the tokens are; None if they are none."""
    total, at = _one_quantity(tokens, 0)
    while total is not None and at < len(tokens):
        if list(tokens[at:]) == ["and", "1/2"]:  # "a cup and a half"
            return Quantity(total.amount + Fraction(1, 2), total.unit)
        start = at + (tokens[at] == "and")
        more, at = _one_quantity(tokens, start, after=total.unit)
        if more is None or (converted := more.to(total.unit)) is None:
            return None
        total = Quantity(total.amount + converted.amount, total.unit)
    return total


def _one_quantity(tokens: Sequence[str], at: int, after: str = "") -> tuple[Quantity | None, int]:
    """ "Three cups", "half a cup", "a cup", "minus ten degrees Celsius"; after feet also a mere number of inches."""
    sign = 1
    if tokens[at : at + 1] in (["minus"], ["negative"]):
        sign, at = -1, at + 1
    amount = as_number(tokens[at]) if at < len(tokens) else None
    if amount is not None:
        at += 1
        if "/" in tokens[at - 1] and tokens[at : at + 2] in (["of", "a"], ["of", "an"]):
            at += 2
        elif tokens[at : at + 1] in (["a"], ["an"]) and "/" in tokens[at - 1]:
            at += 1
    elif tokens[at : at + 2] in (["half", "a"], ["half", "an"]):
        amount, at = Fraction(1, 2), at + 2
    elif tokens[at : at + 1] in (["a"], ["an"]):
        amount, at = Fraction(1), at + 1
    elif tokens[at : at + 1] == ["half"]:
        amount, at = Fraction(1, 2), at + 1
    else:
        return None, at
    unit, end = take_unit(tokens, at)
    if not unit and after == "foot" and at == len(tokens):
        return Quantity(sign * amount, "inch"), at
    if not unit:
        return None, at
    if end < len(tokens) and amount == 1 and tokens[end:] == ["and", "1/2"]:
        return Quantity(Fraction(3, 2), unit), len(tokens)
    return Quantity(sign * amount, unit), end
