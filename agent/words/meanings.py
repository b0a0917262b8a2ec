"""What words mean in any language: the parts of a date, a time of day, and how a user wants to be spoken to."""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import date
from typing import Literal

Manner = Literal["slower", "faster", "louder", "quieter", "normal"]
"""How a user wants to be spoken to."""


@dataclass(frozen=True)
class DateParts:
    """The parts of a date that are known. `weekday` is 0 for Monday."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    weekday: int | None = None


@dataclass(frozen=True)
class TimeParts:
    """A time of day as it was said. `hour` is as it was said; `afternoon` is None while nobody has said which half."""

    hour: int | None = None
    minute: int = 0
    afternoon: bool | None = None


class YearlessDay(date):
    """A day of no particular year: the nearest one, unless a difference asks for another."""


def months_after(day: date, months: int) -> date:
    """The same day of a later month, or its last day. Raises OverflowError."""
    number = day.year * 12 + day.month - 1 + months
    year, month = number // 12, number % 12 + 1
    if not 1 <= year <= 9999:
        raise OverflowError("the year is out of range")
    return day.replace(year=year, month=month, day=min(day.day, monthrange(year, month)[1]))


def existing_day(year: int, month: int, day: int) -> date | None:
    """A day, or None if there is no such one."""
    try:
        return date(year, month, day)
    except ValueError:
        return None
