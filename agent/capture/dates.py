"""A date as people say it: "the fifteenth of March", "next Tuesday", "in two weeks"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any, ClassVar, Literal

from agent.capture.field import Field, Progress
from agent.words.language import DateParts, existing_day, language

_ENGLISH = language("en")

_MAX_MONTHS_AHEAD = 48
"""How far a day such as "the 31st", or "Friday the 13th", is searched."""

_MAX_YEARS_AGO = 150
"""Four keys after "Of which year?" that are no such year are a month and a day."""


@dataclass(frozen=True, kw_only=True)
class Date(Field[DateParts, date]):
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
    schema: ClassVar[dict[str, Any]] = {"type": "string", "format": "date"}
    empty: ClassVar[DateParts] = DateParts()
    hint: ClassVar[str] = "Please say the day and the month, for example: the fifteenth of March."

    def hear(self, text: str, entry: DateParts) -> DateParts | None:
        heard = _ENGLISH.date_parts(text, self.today(), day_first=self.day_first)
        if heard is None:
            return None
        if heard.month is not None and heard.day is not None and entry.day is not None:
            return heard  # a whole date, instead of what was known
        if heard == DateParts(weekday=heard.weekday):
            return heard  # "no, on Wednesday"
        weekday = heard.weekday if heard.weekday is not None or heard.day is not None else entry.weekday
        return DateParts(
            entry.year if heard.year is None else heard.year,
            entry.month if heard.month is None else heard.month,
            entry.day if heard.day is None else heard.day,
            weekday,
        )

    def press(self, keys: str, entry: DateParts) -> DateParts | None:
        lacks_year = self.when == "past" and entry.year is None and None not in (entry.month, entry.day)
        if lacks_year and len(keys) == 4 and 0 <= self.today().year - int(keys) <= _MAX_YEARS_AGO:
            return replace(entry, year=int(keys))
        if not 4 <= len(keys) <= 8:
            return None
        first, second = int(keys[:2]), int(keys[2:4])
        day, month = (first, second) if self.day_first else (second, first)
        year = int(keys[4:]) if len(keys) == 8 else None
        return DateParts(year, month, day) if 1 <= month <= 12 and 1 <= day <= 31 else None

    def progress(self, entry: DateParts) -> Progress:
        if entry == DateParts():
            return Progress.EMPTY
        if self.when == "past" and entry.year is None:
            return Progress.PARTIAL
        if entry.day is None:
            return Progress.PARTIAL if entry.month is not None or entry.weekday is None else Progress.POSSIBLE
        return Progress.COMPLETE if entry.month is not None else Progress.POSSIBLE

    def ask_rest(self, entry: DateParts) -> str:
        if entry.day is not None and entry.month is None:
            return f"The {_ENGLISH.say_ordinal(entry.day)} of which month?"
        if entry.day is None:
            return f"Which day in {_month(entry.month)}?" if entry.month is not None else "Which day and month?"
        return "Of which year?"

    def value(self, entry: DateParts) -> date:
        today, step = self.today(), 1 if self.when == "future" else -1
        if entry.day is None:
            assert entry.weekday is not None  # otherwise it is partial
            ahead = (entry.weekday - today.weekday()) % 7
            return today + timedelta(days=(ahead or 7) if step > 0 else ahead - 7)
        if entry.year is not None or entry.month is not None:
            return self._of_month(entry, today, step)
        for months in range(_MAX_MONTHS_AHEAD):
            number = today.year * 12 + today.month - 1 + step * months
            found = existing_day(number // 12, number % 12 + 1, entry.day)
            passed = found is None or (found < today if step > 0 else found > today)
            if found is not None and not passed and entry.weekday in (None, found.weekday()):
                return found
        raise ValueError("There is no such day.")

    def _of_month(self, entry: DateParts, today: date, step: int) -> date:
        month, day = entry.month or today.month, entry.day or 1
        years = [entry.year] if entry.year is not None else [today.year + step * n for n in range(9)]
        existing = [found for year in years if (found := existing_day(year, month, day)) is not None]
        if not existing:
            raise ValueError(f"There is no {_month(month)} {_ENGLISH.say_ordinal(day)}.")
        ahead = [found for found in existing if (found >= today if step > 0 else found <= today)]
        if not ahead:
            raise ValueError(f"{_ENGLISH.say_date(existing[0])} {'has passed' if step > 0 else 'is still to come'}.")
        if entry.weekday is not None and ahead[0].weekday() != entry.weekday:
            weekday = _ENGLISH.WEEKDAYS[ahead[0].weekday()].title()
            raise ValueError(f"{_month(month)} {_ENGLISH.say_ordinal(day)} is a {weekday}.")
        return ahead[0]

    def read_back(self, entry: DateParts, *, careful: bool) -> str:
        found = self.value(entry)
        return _ENGLISH.say_date(found, with_year=careful or found.year != self.today().year)

    def to_json(self, value: date) -> str:
        return value.isoformat()


def _month(number: int) -> str:
    return _ENGLISH.MONTHS[number - 1].title()
