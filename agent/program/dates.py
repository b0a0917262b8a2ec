"""The days that people name: "friday", "tomorrow", "june 1", "christmas", "in 3 days". English."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date, datetime, timedelta
from fractions import Fraction

from agent.program.values import BadProgram, Duration, YearlessDay, add
from agent.spoken_numbers import ORDINALS, digits_for_words

WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
_MONTHS = "january february march april may june july august september october november december".split()
_MONTH = rf"({'|'.join(_MONTHS)}|{'|'.join(month[:3] for month in _MONTHS)})"
_ORDINAL = re.compile(rf"\b({'|'.join(sorted(ORDINALS, key=len, reverse=True))})\b")
_FEASTS = {
    "christmas eve": (12, 24), "christmas": (12, 25), "christmas day": (12, 25), "boxing day": (12, 26),
    "new year's eve": (12, 31), "new years eve": (12, 31), "new year": (1, 1), "new year's": (1, 1),
    "new year's day": (1, 1), "valentine's day": (2, 14), "valentines day": (2, 14), "halloween": (10, 31),
}  # fmt: skip
_RELATIVE = {"today": 0, "tonight": 0, "tomorrow": 1, "yesterday": -1, "the day after tomorrow": 2,
             "day after tomorrow": 2, "the day before yesterday": -2, "day before yesterday": -2}  # fmt: skip
_MONTH_DAY = re.compile(rf"{_MONTH}\.? (?:the )?(\d{{1,2}})(?:st|nd|rd|th)?(?:,? (\d{{4}}))?")
_DAY_MONTH = re.compile(rf"(?:the )?(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,? (\d{{4}}))?")
_NUMBERS = re.compile(r"(?:(\d{4})-)?(\d{1,2})-(\d{1,2})")
_WEEKDAY = re.compile(rf"(?:(next|last|this past|past|this)(?: coming)? |on )?({'|'.join(WEEKDAYS)})s?")
_DAY_OF_MONTH = re.compile(
    rf"(?:the )?(\d|last) (day|{'|'.join(WEEKDAYS)}) (?:of|in) (?:{_MONTH}|(this|the|next) month)(?: (\d{{4}}))?"
)
_COUNTED = re.compile(r"(?:in )?(\d{1,5}|an?) (day|week|month|year)s?( ago)?(?: from now| from today)?")


def local_time() -> datetime:
    """The time of this machine, with its zone."""
    return datetime.now().astimezone()


def named_date(text: str, now: datetime, *, nearest: bool = False) -> date:
    """The day that a text names. Raises BadProgram.

    Args:
        nearest: a day without a year is the nearest one, a `YearlessDay`; otherwise the next one.
    """
    plain = _ORDINAL.sub(lambda match: str(ORDINALS[match[1]]), text.lower().replace("’", "'"))
    plain = " ".join(digits_for_words(plain).replace(",", " ").split())
    today = now.date()
    if plain in _RELATIVE:
        return today + timedelta(days=_RELATIVE[plain])
    feast, _, year = plain.rpartition(" ") if re.search(r" \d{4}$", plain) else (plain, "", "")
    if feast in _FEASTS:
        return _day_of(year, *_FEASTS[feast], today, nearest)
    if match := _NUMBERS.fullmatch(plain):
        return _day_of(match[1], int(match[2]), int(match[3]), today, nearest)
    if match := _MONTH_DAY.fullmatch(plain):
        return _day_of(match[3], _month(match[1]), int(match[2]), today, nearest)
    if match := _DAY_MONTH.fullmatch(plain):
        return _day_of(match[3], _month(match[2]), int(match[1]), today, nearest)
    if match := _WEEKDAY.fullmatch(plain):
        return _weekday(WEEKDAYS.index(match[2]), match[1] or "", today)
    if match := _DAY_OF_MONTH.fullmatch(plain):
        return _day_of_month(match, today)
    if match := _COUNTED.fullmatch(plain):
        count = (int(match[1]) if match[1].isdigit() else 1) * (-1 if match[3] else 1)
        days, months = {"day": (1, 0), "week": (7, 0), "month": (0, 1), "year": (0, 12)}[match[2]]
        later = add(today, Duration(Fraction(count * days * 86_400), months=count * months))
        assert isinstance(later, date)
        return later
    raise BadProgram(f"{text!r} is no day that is known")


def is_named_date(text: str) -> bool:
    """Whether a text names a day."""
    try:
        named_date(text, datetime(2024, 1, 1))
    except BadProgram:
        return False
    return True


def _weekday(number: int, which: str, today: date) -> date:
    ahead = (number - today.weekday() - 1) % 7 + 1
    if which in ("last", "past", "this past"):
        return today + timedelta(days=ahead - 7 if ahead < 7 else -7)
    same_week = today.weekday() + ahead < 7
    return today + timedelta(days=ahead + (7 if which == "next" and same_week else 0))


def _day_of_month(match: re.Match[str], today: date) -> date:
    """The first Sunday of a month, the last day of one, and so on: this year, or the next if it is over."""
    which, day, month, relative, year = match.groups()
    if relative:
        first = (today.replace(day=1) + timedelta(days=32 if relative == "next" else 0)).replace(day=1)
        return _days_like(first, day, which)
    first = date(int(year) if year else today.year, _month(month), 1)
    found = _days_like(first, day, which)
    return found if year or found >= today else _days_like(first.replace(year=first.year + 1), day, which)


def _days_like(first: date, day: str, which: str) -> date:
    """A day of a month by its number among those of its kind, or the last one."""
    days = [first + timedelta(days=n) for n in range(monthrange(first.year, first.month)[1])]
    alike = [each for each in days if day in ("day", WEEKDAYS[each.weekday()])]
    if which == "last":
        return alike[-1]
    if not 1 <= int(which) <= len(alike):
        raise BadProgram(f"the month has no such {day}")
    return alike[int(which) - 1]


def _month(name: str) -> int:
    return [month[:3] for month in _MONTHS].index(name[:3]) + 1


def _day_of(year: str | None, month: int, day: int, today: date, nearest: bool) -> date:
    """A day of a year, or of the next or the nearest year that has it."""
    try:
        if year:
            return date(int(year), month, day)
        years = range(today.year - 8, today.year + 9)
        found = [existing for each in years if (existing := _existing(each, month, day))]
        if nearest:
            closest = min(found, key=lambda each: abs(each - today))
            return YearlessDay(closest.year, closest.month, closest.day)
        return next(each for each in found if each >= today)
    except (ValueError, StopIteration):
        raise BadProgram(f"there is no such day: {month}-{day}") from None


def _existing(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        if not 1 <= month <= 12 or not 1 <= day <= 31:
            raise
        return None
