"""A date as people say it: "the fifteenth of March", "next Tuesday", "in two weeks". English."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any, ClassVar, Literal

from agent.capture.corrections import without_denial
from agent.capture.field import Field, Progress
from agent.spoken_numbers import cardinal, ordinal, tokens

WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
_WEEKDAY_NUMBERS = {name.lower(): number for number, name in enumerate(WEEKDAYS)}
_MONTH_NUMBERS = {name.lower(): number for number, name in enumerate(MONTHS, 1)} | {
    name[:3].lower(): number for number, name in enumerate(MONTHS, 1) if name != "May"
} | {"sept": 9}  # fmt: skip
_ORDINAL_NAMES = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth twentieth twenty-first twenty-second twenty-third twenty-fourth "
    "twenty-fifth twenty-sixth twenty-seventh twenty-eighth twenty-ninth thirtieth thirty-first"
).split()

_MAX_MONTHS_AHEAD = 48
"""How far a day such as "the 31st", or "Friday the 13th", is searched."""


@dataclass(frozen=True)
class DateEntry:
    """The parts of a date that are known. `weekday` is 0 for Monday."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    weekday: int | None = None


@dataclass(frozen=True, kw_only=True)
class Date(Field[DateEntry, date]):
    """A date. Its value is a `datetime.date`, in JSON `YYYY-MM-DD`.

    Attributes:
        today: the date where the caller is.
        when: a date without a year lies in the future or in the past; `past` asks for the year, as for a birthday.
        day_first: whether "3/4" is the third of April.
    """

    prompt: str = "For which date?"
    today: Callable[[], date] = date.today
    when: Literal["future", "past"] = "future"
    day_first: bool = False

    kind: ClassVar[str] = "date"

    @property
    def empty(self) -> DateEntry:
        return DateEntry()

    @property
    def hint(self) -> str:
        return "Please say the day and the month, for example: the fifteenth of March."

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "format": "date"}

    def hear(self, text: str, entry: DateEntry) -> DateEntry | None:
        heard = self._parse(text)
        if heard is None:
            return None
        if heard.month is not None and heard.day is not None and entry.day is not None:
            return heard  # a whole date, instead of what was known
        if heard == DateEntry(weekday=heard.weekday):
            return heard  # "no, on Wednesday"
        weekday = heard.weekday if heard.weekday is not None or heard.day is not None else entry.weekday
        return DateEntry(
            entry.year if heard.year is None else heard.year,
            entry.month if heard.month is None else heard.month,
            entry.day if heard.day is None else heard.day,
            weekday,
        )

    def press(self, keys: str, entry: DateEntry) -> DateEntry | None:
        if not 4 <= len(keys) <= 8:
            return None
        first, second = int(keys[:2]), int(keys[2:4])
        day, month = (first, second) if self.day_first else (second, first)
        year = int(keys[4:]) if len(keys) == 8 else None
        return DateEntry(year, month, day) if 1 <= month <= 12 and 1 <= day <= 31 else None

    def correct(self, text: str, entry: DateEntry) -> DateEntry | None:
        return self.hear(without_denial(text), entry)

    def progress(self, entry: DateEntry) -> Progress:
        if entry == DateEntry():
            return Progress.EMPTY
        if self.when == "past" and entry.year is None:
            return Progress.PARTIAL
        if entry.day is None:
            return Progress.PARTIAL if entry.month is not None or entry.weekday is None else Progress.POSSIBLE
        return Progress.COMPLETE if entry.month is not None else Progress.POSSIBLE

    def ask_rest(self, entry: DateEntry) -> str:
        if entry.day is not None and entry.month is None:
            return f"The {_ORDINAL_NAMES[entry.day - 1]} of which month?"
        if entry.day is None:
            return f"Which day in {MONTHS[entry.month - 1]}?" if entry.month is not None else "Which day and month?"
        return "Of which year?"

    def value(self, entry: DateEntry) -> date:
        today, step = self.today(), 1 if self.when == "future" else -1
        if entry.day is None:
            assert entry.weekday is not None  # otherwise it is partial
            ahead = (entry.weekday - today.weekday()) % 7
            return today + timedelta(days=(ahead or 7) if step > 0 else ahead - 7)
        if entry.year is not None or entry.month is not None:
            return self._of_month(entry, today, step)
        for months in range(_MAX_MONTHS_AHEAD):
            number = today.year * 12 + today.month - 1 + step * months
            found = _date(number // 12, number % 12 + 1, entry.day)
            passed = found is None or (found < today if step > 0 else found > today)
            if found is not None and not passed and entry.weekday in (None, found.weekday()):
                return found
        raise ValueError("There is no such day.")

    def _of_month(self, entry: DateEntry, today: date, step: int) -> date:
        month, day = entry.month or today.month, entry.day or 1
        years = [entry.year] if entry.year is not None else [today.year + step * n for n in range(9)]
        existing = [found for year in years if (found := _date(year, month, day)) is not None]
        if not existing:
            raise ValueError(f"There is no {MONTHS[month - 1]} {_ORDINAL_NAMES[day - 1]}.")
        ahead = [found for found in existing if (found >= today if step > 0 else found <= today)]
        if not ahead:
            raise ValueError(f"{say_date(existing[0])} {'has passed' if step > 0 else 'is still to come'}.")
        if entry.weekday is not None and ahead[0].weekday() != entry.weekday:
            raise ValueError(f"{_day_of(ahead[0])} is a {WEEKDAYS[ahead[0].weekday()]}.")
        return ahead[0]

    def read_back(self, entry: DateEntry, *, careful: bool) -> str:
        found = self.value(entry)
        return say_date(found, with_year=careful or found.year != self.today().year)

    def to_json(self, value: date) -> str:
        return value.isoformat()

    def _parse(self, text: str) -> DateEntry | None:
        plain, today = " ".join(text.lower().replace(",", " ").split()), self.today()
        if (relative := _relative(plain, today)) is not None:
            return DateEntry(relative.year, relative.month, relative.day)
        if match := re.search(r"\b(\d{4})-(\d{1,2})-(\d{1,2})\b", plain):
            return _checked(DateEntry(int(match[1]), int(match[2]), int(match[3])))
        if match := re.search(r"\b(\d{1,2})[/.-](\d{1,2})(?:[/.-](\d{4}|\d{2}))?\b", plain):
            first, second = int(match[1]), int(match[2])
            day, month = (first, second) if self.day_first or first > 12 else (second, first)
            return _checked(DateEntry(_full_year(match[3]), month, day))
        return _in_words(plain)


def _in_words(plain: str) -> DateEntry | None:
    """The parts of a date that words name, in any order."""
    found, entry, i = tokens(plain), DateEntry(), 0
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
    return None if entry == DateEntry() else entry


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


def _relative(plain: str, today: date) -> date | None:
    """A date that is named from today: "tomorrow", "in two weeks", "next Tuesday"."""
    if "day after tomorrow" in plain:
        return today + timedelta(days=2)
    if "tomorrow" in plain:
        return today + timedelta(days=1)
    if re.search(r"\btoday\b", plain):
        return today
    if "yesterday" in plain:
        return today - timedelta(days=1)
    if match := re.search(r"\b(?:in |after )?(an?|one|[a-z]+|\d+) (days?|weeks?)\b(?: from (\w+))?", plain):
        count = 1 if match[1] in ("a", "an") else (cardinal([match[1]]) or (0, 0))[0]
        start = today
        if match[3] in _WEEKDAY_NUMBERS:
            start += timedelta(days=(_WEEKDAY_NUMBERS[match[3]] - today.weekday()) % 7)
        if count and (plain.startswith("in ") or " in " in plain or match[3]):
            return start + timedelta(days=count * (7 if match[2].startswith("week") else 1))
    if match := re.search(
        rf"\b(next|this)(?: coming)? ({'|'.join(_WEEKDAY_NUMBERS)})\b(?! (?:the )?\w+(?:th|st|nd|rd))", plain
    ):
        ahead = (_WEEKDAY_NUMBERS[match[2]] - today.weekday()) % 7
        same_week = today.weekday() + ahead < 7
        return today + timedelta(days=ahead + (7 if match[1] == "next" and same_week else 0))
    return None


def _checked(entry: DateEntry) -> DateEntry | None:
    valid = 1 <= (entry.month or 1) <= 12 and 1 <= (entry.day or 1) <= 31
    return entry if valid else None


def _full_year(text: str | None) -> int | None:
    if not text:
        return None
    return int(text) if len(text) == 4 else 2000 + int(text) if int(text) < 70 else 1900 + int(text)


def _date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _day_of(day: date) -> str:
    return f"{MONTHS[day.month - 1]} {_ORDINAL_NAMES[day.day - 1]}"


def say_date(day: date, *, with_year: bool = False) -> str:
    """A date in words: "Tuesday, March twenty-fourth"."""
    year = f", {day.year}" if with_year else ""
    return f"{WEEKDAYS[day.weekday()]}, {_day_of(day)}{year}"
