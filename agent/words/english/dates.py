"""The days that people name: "friday", "tomorrow", "june 1", "christmas", "the first Sunday of May"; and the parts of a
date among other words: "the fifteenth of March", "no, on Wednesday"."""

from __future__ import annotations

import itertools
import re
from calendar import monthrange
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta

from agent.words.english.number_words import ordinal as say_ordinal
from agent.words.english.numbers import ORDINALS, cardinal, digits_for_words, ordinal, tokens
from agent.words.language import DateParts, YearlessDay, existing_day, months_after

WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
MONTHS = "january february march april may june july august september october november december".split()

_WEEKDAY_NUMBERS = {name: number for number, name in enumerate(WEEKDAYS)}
_MONTH_NUMBERS = {
    written: number for number, name in enumerate(MONTHS, 1) for written in (name, name[:3])
} | {"sept": 9}  # fmt: skip

_MONTH = rf"({'|'.join(sorted(_MONTH_NUMBERS, key=len, reverse=True))})"
_WEEKDAY_NAME = rf"({'|'.join(WEEKDAYS)})"
_ORDINAL = re.compile(rf"\b({'|'.join(sorted(ORDINALS, key=len, reverse=True))})\b")
_FEASTS = {
    "christmas eve": (12, 24), "christmas": (12, 25), "christmas day": (12, 25), "boxing day": (12, 26),
    "new year's eve": (12, 31), "new years eve": (12, 31), "new year": (1, 1), "new year's": (1, 1),
    "new year's day": (1, 1), "valentine's day": (2, 14), "valentines day": (2, 14), "halloween": (10, 31),
}  # fmt: skip
_RELATIVE = {"today": 0, "tonight": 0, "tomorrow": 1, "yesterday": -1, "the day after tomorrow": 2,
             "day after tomorrow": 2, "the day before yesterday": -2, "day before yesterday": -2}  # fmt: skip
_SUPPOSING = frozenset("if suppose supposing assume assuming imagine pretend say saying given were".split())
_SUPPOSED = frozenset("today it tomorrow yesterday now".split())
_REACH = 4
"""Words between "suppose" and "it is", at most, and these two."""

_MONTH_DAY = re.compile(rf"{_MONTH}\.? (?:the )?(\d{{1,2}})(?:st|nd|rd|th)?(?:,? (\d{{4}}))?")
_DAY_MONTH = re.compile(rf"(?:the )?(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,? (\d{{4}}))?")
_NUMBERS = re.compile(r"(?:(\d{4})-)?(\d{1,2})-(\d{1,2})")
_WEEKDAY = re.compile(rf"(?:(next|last|this past|past|this)(?: coming)? |on )?{_WEEKDAY_NAME}s?")
_DAY_OF_MONTH = re.compile(
    rf"(?:the )?(\d|last) (day|{'|'.join(WEEKDAYS)}) (?:of|in) (?:{_MONTH}|(this|the|next) month)(?: (\d{{4}}))?"
)
_COUNTED = re.compile(r"(?:in )?(\d{1,5}|an?) (day|week|month|year)s?( ago)?(?: from now| from today)?")

_NAMED_FROM_TODAY = re.compile(
    rf"(?P<day>\b(?:day after tomorrow|tomorrow|today|yesterday)\b|\b(?:next|this)(?: coming)? (?:{'|'.join(WEEKDAYS)})"
    r"\b(?! (?:the )?\w+(?:th|st|nd|rd)))"
)
_COUNTED_FROM = re.compile(
    r"\b(?P<in>in )?(?P<count>an?|\d{1,4}) (?P<unit>day|week|fortnight)s?\b"
    rf"(?: (?:from|after) (?P<base>now|today|tomorrow|(?:next )?{_WEEKDAY_NAME})\b)?"
)
_UNIT_DAYS = {"day": 1, "week": 7, "fortnight": 14}


def named_date(text: str, now: datetime, *, nearest: bool = False) -> date:
    """See `Language`."""
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
        return _day_of(match[3], _MONTH_NUMBERS[match[1]], int(match[2]), today, nearest)
    if match := _DAY_MONTH.fullmatch(plain):
        return _day_of(match[3], _MONTH_NUMBERS[match[2]], int(match[1]), today, nearest)
    if match := _WEEKDAY.fullmatch(plain):
        return _weekday(WEEKDAYS.index(match[2]), match[1] or "", today)
    if match := _DAY_OF_MONTH.fullmatch(plain):
        return _day_of_month(match, today)
    if match := re.fullmatch(r"(?:on )?(?:the (\d{1,2})(?:st|nd|rd|th)?|(\d{1,2})(?:st|nd|rd|th))", plain):
        return _numbered_day(int(match[1] or match[2]), today)
    if plain in _AHEAD:
        return _AHEAD[plain](today)
    if match := _COUNTED.fullmatch(plain):
        count = (int(match[1]) if match[1].isdigit() else 1) * (-1 if match[3] else 1)
        days, months = {"day": (1, 0), "week": (7, 0), "month": (0, 1), "year": (0, 12)}[match[2]]
        try:
            return months_after(today, count * months) + timedelta(days=count * days)
        except OverflowError:
            raise ValueError("the date is out of range") from None
    raise ValueError(f"{text!r} is no day that is known")


def supposes_another_day(text: str) -> bool:
    """See `Language`."""
    words = tokens(text.replace("’", "'").replace("'s ", " is "))
    return any(
        first in _SUPPOSING and day in _SUPPOSED and verb in ("is", "was", "were", "be")
        for n, first in enumerate(words)
        for day, verb in itertools.pairwise(words[n + 1 : n + 1 + _REACH])
    )


def is_named_date(text: str) -> bool:
    """See `Language`."""
    try:
        named_date(text, datetime(2024, 1, 1))
    except ValueError:
        return False
    return text.strip().lower() not in _AHEAD  # "how many days until next year" means its beginning


def _numbered_day(number: int, today: date) -> date:
    """The next day with this number in its month. Raises ValueError."""
    for months in range(0 if number >= today.day else 1, 3):
        first = months_after(today.replace(day=1), months)
        if 1 <= number <= monthrange(first.year, first.month)[1]:
            return first.replace(day=number)
    raise ValueError(f"no month has a day {number}")


def _weekend(today: date, weeks: int) -> date:
    """The Saturday of this weekend, or of one that is later; on a Sunday, this weekend is that day."""
    first = today if today.weekday() >= 5 else today + timedelta(days=5 - today.weekday())
    return first + timedelta(days=7 * weeks - (today.weekday() == 6 and weeks > 0))


_AHEAD: dict[str, Callable[[date], date]] = {
    "next week": lambda today: today + timedelta(days=7),
    "next month": lambda today: months_after(today, 1),
    "next year": lambda today: months_after(today, 12),
    "the weekend": lambda today: _weekend(today, 0),
    "this weekend": lambda today: _weekend(today, 0),
    "next weekend": lambda today: _weekend(today, 1),
    **dict.fromkeys(
        ("end of the month", "the end of the month", "end of this month", "the end of this month"),
        lambda today: today.replace(day=monthrange(today.year, today.month)[1]),
    ),
}
"""Days that are named by a time ahead."""


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
        return _day_like(months_after(today.replace(day=1), relative == "next"), day, which)
    first = date(int(year) if year else today.year, _MONTH_NUMBERS[month], 1)
    found = _day_like(first, day, which)
    return found if year or found >= today else _day_like(months_after(first, 12), day, which)


def _day_like(first: date, day: str, which: str) -> date:
    """A day of a month by its number among those of its kind, or the last one."""
    days = [first + timedelta(days=n) for n in range(monthrange(first.year, first.month)[1])]
    alike = [each for each in days if day in ("day", WEEKDAYS[each.weekday()])]
    if which != "last" and not 1 <= int(which) <= len(alike):
        raise ValueError(f"the month has no such {day}")
    return alike[-1 if which == "last" else int(which) - 1]


def _day_of(year: str | None, month: int, day: int, today: date, nearest: bool) -> date:
    """A day of a year, or of the next or the nearest year that has it."""
    try:
        if year:
            return date(int(year), month, day)
        years = range(today.year - 8, today.year + 9)
        found = [existing for each in years if (existing := existing_day(each, month, day))]
        if nearest:
            closest = min(found, key=lambda each: abs(each - today))
            return YearlessDay(closest.year, closest.month, closest.day)
        return next(each for each in found if each >= today)
    except (ValueError, StopIteration):
        raise ValueError(f"there is no such day: {month}-{day}") from None


def date_parts(text: str, today: date, *, day_first: bool) -> DateParts | None:
    """See `Language`."""
    instead = re.match(r"\W*(?:no\W+)?not [^,]{1,40}?(?:,| but) (.+)", text.lower())
    parts = _parts_of(instead[1], today, day_first=day_first) if instead else None
    return _parts_of(text, today, day_first=day_first) if parts is None else parts


def _parts_of(text: str, today: date, *, day_first: bool) -> DateParts | None:
    """The parts of the first date that a text names."""
    plain = " ".join(text.lower().replace(",", " ").split())
    if (relative := _from_today(plain, today)) is not None:
        return DateParts(relative.year, relative.month, relative.day)
    if match := re.search(r"\b(\d{4})-(\d{1,2})-(\d{1,2})\b", plain):
        return _checked(DateParts(int(match[1]), int(match[2]), int(match[3])))
    match = re.search(r"\b(\d{1,2})[/.-](\d{1,2})[/.-](\d{4}|\d{2})\b|\b(\d{1,2})/(\d{1,2})\b", plain)
    if match := match or re.fullmatch(r"(?:on )?(\d{1,2})[.-](\d{1,2})\W*", plain):  # elsewhere it is a time
        numbers = [number for number in match.groups() if number]
        first, second = int(numbers[0]), int(numbers[1])
        day, month = (first, second) if day_first or first > 12 else (second, first)
        return _checked(DateParts(_full_year(numbers[2] if numbers[2:] else None), month, day))
    return _parts_in_words(plain)


def _from_today(plain: str, today: date) -> date | None:
    """A date that is named from today: "tomorrow", "in two weeks", "next Tuesday"."""
    now = datetime(today.year, today.month, today.day)
    for counted in _COUNTED_FROM.finditer(digits_for_words(plain)):
        if counted["in"] or counted["base"]:
            count = 1 if counted["count"].startswith("a") else int(counted["count"])
            return _base(counted["base"], today) + timedelta(days=count * _UNIT_DAYS[counted["unit"]])
    if match := _NAMED_FROM_TODAY.search(plain):
        # "This Tuesday", said on one, is today: an appointment may be made for today.
        is_today = match["day"].startswith("this") and match["day"].endswith(WEEKDAYS[today.weekday()])
        return today if is_today else named_date(match["day"], now)
    return None


def _base(name: str | None, today: date) -> date:
    """The day from which others are counted. A weekday is today, if today is one."""
    if name is None or name == "now":
        return today
    if name in _WEEKDAY_NUMBERS:
        return today + timedelta(days=(_WEEKDAY_NUMBERS[name] - today.weekday()) % 7)
    return named_date(name, datetime(today.year, today.month, today.day))


def _parts_in_words(plain: str) -> DateParts | None:
    """The parts of a date that words name, in any order."""
    found, entry, i = tokens(plain), DateParts(), 0
    while i < len(found):
        token = found[i]
        if token in _MONTH_NUMBERS and (token != "may" or len(found) == 1 or _may_is_a_month(found, i)):
            entry, i = replace(entry, month=_MONTH_NUMBERS[token]), i + 1
        elif token in _WEEKDAY_NUMBERS:
            entry, i = replace(entry, weekday=_WEEKDAY_NUMBERS[token]), i + 1
        elif (day := ordinal(found, i)) is not None and 1 <= day[0] <= 31 and entry.day is None:
            entry, i = replace(entry, day=day[0]), day[1]
        elif (year := _spoken_year(found, i)) is not None:
            entry, i = replace(entry, year=year[0]), year[1]
        elif (number := cardinal(found, i)) is not None:
            beside_month = entry.month is not None or (found[number[1] : number[1] + 1] or [""])[0] in _MONTH_NUMBERS
            of_month = found[number[1] : number[1] + 1] == ["of"]
            if entry.day is None and 1 <= number[0] <= 31 and (beside_month or of_month or len(found) <= 2):
                entry = replace(entry, day=number[0])
            i = number[1]
        else:
            i += 1
    return None if entry == DateParts() else entry


def _may_is_a_month(found: list[str], i: int) -> bool:
    """Whether this "may" stands next to a day, and is not the verb."""
    before, after = found[max(i - 2, 0) : i], found[i + 1 : i + 3]
    near = [*before, *after]
    return (
        any(ordinal([word]) or word.isdigit() or cardinal([word]) for word in near) or "in" in before or "of" in before
    )


def _spoken_year(found: list[str], i: int) -> tuple[int, int] | None:
    """A year ("2027", "twenty twenty seven", "two thousand and five"), and the token after it."""
    if re.fullmatch(r"(19|20)\d\d", found[i]):
        return int(found[i]), i + 1
    century = cardinal(found[: i + 1], i)
    if century is not None and century[0] in (19, 20):
        rest_from = i + 2 if found[i + 1 : i + 2] in (["oh"], ["o"]) else i + 1
        rest = cardinal(found, rest_from)
        if rest is not None and (10 <= rest[0] <= 99 or rest_from == i + 2):
            return century[0] * 100 + rest[0], rest[1]
    whole = cardinal(found, i)
    return whole if whole is not None and 1900 <= whole[0] <= 2100 else None


def _checked(entry: DateParts) -> DateParts | None:
    has_month = entry.month is None or 1 <= entry.month <= 12
    return entry if has_month and (entry.day is None or 1 <= entry.day <= 31) else None


def _full_year(text: str | None) -> int | None:
    if not text:
        return None
    return int(text) if len(text) == 4 else 2000 + int(text) if int(text) < 70 else 1900 + int(text)


def say_date(day: date, *, with_year: bool = False) -> str:
    """See `Language`: "Tuesday, March twenty-fourth"."""
    year = f", {day.year}" if with_year else ""
    return f"{WEEKDAYS[day.weekday()].title()}, {MONTHS[day.month - 1].title()} {say_ordinal(day.day)}{year}"
