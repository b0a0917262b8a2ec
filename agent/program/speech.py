"""Values as they are said."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from agent.program.units import unit_name
from agent.program.values import BadProgram, Clock, Duration, Quantity, Value, rounded
from agent.words.english.number_words import singular_of

THINKING_PHRASE = "Let me see. "
"""Said while a program is being written."""

_MAX_DIGITS = 15
"""Longer numbers are said as powers of ten."""

_MAX_DECIMALS = 4
"""A number with more of them is rounded."""

_CENT = Fraction(1, 100)

_MONEY = frozenset("dollar dollars euro euros pound pounds".split())

_MAX_SECONDS = 10**12


def answer(value: Value, unit: str, now: datetime) -> str:
    """A sentence that says a result.

    Args:
        unit: what a number counts, or where a moment is ("in Lima"); empty if nothing.
    """
    match value:
        case bool():
            return "Yes." if value else "No."
        case str():
            return value if value[-1:] in ".!?" else f"{value}."
        case Clock():
            days = value.days if value.certain else 0  # nobody knows whether it is another day
            day = {0: "", 1: " on the next day", -1: " on the day before"}.get(days)
            if day is None:
                day = f" {abs(days)} days {'later' if days > 0 else 'before'}"
            return f"It's {spoken_clock(value)}{day}."
        case datetime():
            day = "" if value.date() == now.date() else f" on {spoken_date(value, now)}"
            return f"It's {spoken_time(value)}{day}{f' {unit}' if unit.startswith('in ') else ''}."
        case date():
            return f"It's {spoken_date(value, now)}."
        case Duration():
            return f"That's {spoken_duration(value) if value != Duration() else 'no time at all'}."
        case Quantity():
            number = spoken_number(value.amount)
            return f"That's {number} {unit_name(value.unit, plural=not _is_one(number))}."
    is_money = unit.lower() in _MONEY
    number = spoken_number(value, is_money=is_money)
    if is_money and number[-2:-1] == ".":
        number += "0"
    if _is_one(number):
        unit = singular_of(unit)
    return f"That's {number}{f' {unit}' if unit else ''}."


def spoken_number(value: Fraction, *, is_money: bool = False) -> str:
    """A number as it is said: exactly if four decimals are enough, otherwise "about" what it is rounded to: to two
    decimals, or to four significant ones below one.

    Args:
        is_money: two decimals have to be enough, from a cent on.
    """
    size = abs(value)
    if size >= 10**_MAX_DIGITS or 0 < size < Fraction(1, 10**_MAX_DECIMALS):
        mantissa, exponent = f"{float(size):.3e}".split("e")
        said = Fraction(f"{mantissa}e{exponent}")
        digits = f"{float(mantissa):g} times ten to the power of {int(exponent)}"
    else:
        has_cents = is_money and size >= _CENT
        said = rounded(size, 2 if has_cents else _MAX_DECIMALS)
        if said != size:
            said = rounded(size, 2 if has_cents or size >= 1 else 3 - math.floor(math.log10(size)))
        digits = f"{Decimal(said.numerator) / said.denominator:,f}"
    return f"{'' if said == size else 'about '}{'minus ' if value < 0 else ''}{digits}"


def _is_one(number: str) -> bool:
    """Whether a number as it is said is followed by a singular."""
    return number.split()[-1] == "1"


def spoken_time(moment: datetime) -> str:
    """A time as people say it, such as "3:05 PM"."""
    return spoken_clock(Clock(60 * moment.hour + moment.minute))


def spoken_clock(clock: Clock) -> str:
    """A time of day; without the half of the day if that is not certain."""
    hour, minute = divmod(clock.minutes, 60)
    if not clock.certain:
        return f"{hour % 12 or 12}:{minute:02}"
    if (hour, minute) in ((0, 0), (12, 0)):
        return "noon" if hour else "midnight"
    return f"{hour % 12 or 12}:{minute:02} {'PM' if hour >= 12 else 'AM'}"


def spoken_date(day: date, now: datetime | None = None) -> str:
    """A date as people say it, such as "Sunday, November 22"; with its year, if it is not the year of `now`."""
    year = "" if now is None or day.year == now.year else f", {day.year}"
    return f"{day:%A, %B} {day.day}{year}"


def spoken_duration(duration: Duration | timedelta) -> str:
    """A duration as people say it: its two largest units, without a sign. Raises BadProgram if it is too long."""
    if isinstance(duration, timedelta):
        duration = Duration(Fraction(duration.total_seconds()))
    if abs(duration.seconds) > _MAX_SECONDS:
        raise BadProgram("the duration is too long")
    if duration.months * duration.seconds < 0:
        raise BadProgram("months have no fixed length")
    rest, parts = round(abs(duration.seconds)), []
    if duration.months:
        years, months = divmod(abs(duration.months), 12)
        parts += [_counted(count, name) for count, name in ((years, "year"), (months, "month")) if count]
    for name, size in (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(_counted(count, name))
    return " and ".join(parts[:2]) or "less than a second"


def _counted(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"
