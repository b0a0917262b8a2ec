"""What a program computes with: numbers, quantities, times of day, dates, moments and durations."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from fractions import Fraction
from functools import cache
from zoneinfo import ZoneInfo

from agent.words.language import YearlessDay, existing_day, months_after

_MINUTES_OF_DAY = 24 * 60


class BadProgram(ValueError):
    """A program that cannot be run: it is no program, or what it computes has no value.

    Attributes:
        begin: how a program begins that may be better; empty if there is no hope.
    """

    def __init__(self, message: str, begin: str = "") -> None:
        super().__init__(message)
        self.begin = begin


class NeedsRate(BadProgram):
    """A program that converts one currency to another one."""


@dataclass(frozen=True)
class Quantity:
    """An amount in a unit, such as 2.5 `liter`."""

    amount: Fraction
    unit: str


@dataclass(frozen=True)
class Duration:
    """A length of time. Months have no fixed length, so they are counted apart."""

    seconds: Fraction = Fraction(0)
    months: int = 0

    @property
    def timedelta(self) -> timedelta:
        """Without its months."""
        return timedelta(seconds=float(self.seconds))

    @property
    def whole_days(self) -> bool:
        """Whether it may be added to a date without a time of day."""
        return self.seconds % 86_400 == 0


@dataclass(frozen=True)
class Clock:
    """A time of day.

    Attributes:
        minutes: since midnight.
        certain: whether it is known which half of the day is meant: "3 pm" is, "3" is not.
        days: later than the day that a computation began with.
    """

    minutes: int
    certain: bool = True
    days: int = 0

    def after(self, seconds: Fraction) -> Clock:
        """The time of day after a duration."""
        minutes = self.minutes + round(seconds / 60)
        return replace(self, minutes=minutes % _MINUTES_OF_DAY, days=self.days + minutes // _MINUTES_OF_DAY)

    def until(self, end: Clock) -> Duration:
        """How long it is to the next such time."""
        day = _MINUTES_OF_DAY if self.certain and end.certain else _MINUTES_OF_DAY // 2
        minutes = end.minutes - self.minutes + (end.days - self.days) * _MINUTES_OF_DAY
        return Duration(Fraction(60 * (minutes % day)))


def local_time() -> datetime:
    """The time of this machine, with its zone."""
    return datetime.now().astimezone(_local_zone())


@cache
def _local_zone() -> ZoneInfo | None:
    """The zone of this machine, of which Python itself only knows today's offset; None if it cannot be found."""
    name = os.environ.get("TZ", "").removeprefix(":")
    try:
        if name:
            return ZoneInfo(name)
        with open("/etc/localtime", "rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError, KeyError):
        return None


Value = Fraction | Quantity | Duration | Clock | date | datetime | str | bool
"""A `datetime` is a moment; a `date` that is none is a day. A `str` is a text."""


def add(left: Value, right: Value) -> Value:
    """The sum. Raises BadProgram if these cannot be added."""
    try:
        return _sum(left, right)
    except OverflowError:
        raise BadProgram("the date is out of range") from None


def _sum(left: Value, right: Value) -> Value:
    match left, right:
        case (Fraction(), Fraction()):
            return left + right
        case (Duration(), Duration()):
            return Duration(left.seconds + right.seconds, left.months + right.months)
        case (Quantity(), Quantity()) if left.unit == right.unit:
            return Quantity(left.amount + right.amount, left.unit)
        case (Quantity(), Fraction()):
            return Quantity(left.amount + right, left.unit)
        case (Fraction(), Quantity()):
            return Quantity(left + right.amount, right.unit)
        case (Duration(), Clock() | date()):
            return add(right, left)
        case (Clock(), Duration()) if not right.months:
            return left.after(right.seconds)
        case (datetime(), Duration()) if right.whole_days or left.tzinfo is None:
            return months_after(left, right.months) + right.timedelta  # the same time of another day
        case (datetime(), Duration()):
            moment = months_after(left, right.months)
            assert isinstance(moment, datetime)
            return (moment.astimezone(UTC) + right.timedelta).astimezone(left.tzinfo)
        case (date(), Duration()) if right.whole_days:
            return months_after(_day(left), right.months) + right.timedelta
        case (date(), Duration()):
            return add(datetime.combine(left, time()), right)
    raise BadProgram("these cannot be added")


def subtract(left: Value, right: Value) -> Value:
    """The difference; between two times of day, how long it is from the second to the first. Raises BadProgram."""
    match left, right:
        case (Clock(), Clock()):
            return right.until(left)
        case (datetime(), datetime()):
            return _between(right, left)
        case (datetime(), Clock()) | (Clock(), datetime()):
            moment, clock = (left, right) if isinstance(left, datetime) else (right, left)
            assert isinstance(moment, datetime)
            assert isinstance(clock, Clock)
            here = Clock(60 * moment.hour + moment.minute)
            return here.until(clock) if clock is left else clock.until(here)
        case (date(), datetime()):
            return _between(right, datetime.combine(_in_year_of(left, right.date(), 1), time(), right.tzinfo))
        case (datetime(), date()):
            return _between(datetime.combine(_in_year_of(right, left.date(), -1), time(), left.tzinfo), left)
        case (date(), date()):
            end = _in_year_of(left, right, 1)
            start = _in_year_of(right, end, -1)
            return Duration(Fraction((end - start).days * 86_400))
        case (_, Fraction() | Duration() | Quantity()):
            return add(left, negated(right))
    raise BadProgram("these cannot be subtracted")


def negated(value: Value) -> Value:
    """Its negative. Raises BadProgram."""
    match value:
        case bool():
            pass
        case Fraction():
            return -value
        case Duration():
            return Duration(-value.seconds, -value.months)
        case Quantity():
            return Quantity(-value.amount, value.unit)
    raise BadProgram("this has no negative")


def multiply(left: Value, right: Value) -> Value:
    """The product of a number and a number, a duration or a quantity. Raises BadProgram."""
    match left, right:
        case (Fraction(), Fraction()):
            return left * right
        case (Fraction(), Duration() | Quantity()):
            return multiply(right, left)
        case (Duration(), Fraction()) if (left.months * right).denominator == 1:
            return Duration(left.seconds * right, int(left.months * right))
        case (Quantity(), Fraction()):
            return Quantity(left.amount * right, left.unit)
    raise BadProgram("these cannot be multiplied")


def divide(left: Value, right: Value) -> Value:
    """The quotient; of two durations or quantities, a number. Raises BadProgram, ZeroDivisionError."""
    match left, right:
        case (Duration(), Duration()) if not left.months and not right.months:
            return left.seconds / right.seconds
        case (Quantity(), Quantity()) if left.unit == right.unit:
            return left.amount / right.amount
        case (_, Fraction()):
            return multiply(left, 1 / right)
    raise BadProgram("these cannot be divided")


def rounded(value: Fraction, digits: int = 0) -> Fraction:
    """A number with so many decimals; halves are rounded away from zero, as people do it."""
    scale = Fraction(10) ** digits
    size = math.floor(abs(value) * scale + Fraction(1, 2)) / scale
    return -size if value < 0 else size


def _between(start: datetime, end: datetime) -> Duration:
    """How long it is from one moment to another; one without a zone is in the other's."""
    zone = start.tzinfo or end.tzinfo or UTC
    moments = [each.replace(tzinfo=each.tzinfo or zone).astimezone(UTC) for each in (start, end)]
    return Duration(Fraction((moments[1] - moments[0]).total_seconds()))


def _in_year_of(day: date, other: date, step: int) -> date:
    """A day of no particular year in the nearest year in which it is not before another day (1), or not after it (-1).
    Others stay. Raises BadProgram."""
    first = _day(day)
    if not isinstance(day, YearlessDay) or (first - other).days * step >= 0:
        return first
    for year in range(other.year, other.year + 9 * step, step):  # 1900 has no February 29
        found = existing_day(year, day.month, day.day)
        if found is not None and (found - other).days * step >= 0:
            return found
    raise BadProgram("the date is out of range")


def _day(moment: date) -> date:
    return moment.date() if isinstance(moment, datetime) else date(moment.year, moment.month, moment.day)
