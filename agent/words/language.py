"""The interface of a language: how numbers, days and times of day in words are read and said. Forms, tools, programs
and documents read them through it; another language is another package beside `english`."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import cache
from importlib import import_module
from typing import Literal, Protocol, cast

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


class Language(Protocol):
    """What a language's package has. All texts are as a recognizer or a keyboard writes them."""

    WEEKDAYS: list[str]
    """In lower case, from Monday."""

    MONTHS: list[str]
    """In lower case, from January."""

    ORDINALS: dict[str, int]
    """The numbers of ordinals in words, up to the days of a month."""

    def tokens(self, text: str) -> list[str]:
        """Lower-case words and numbers in digits, in their order. Ordinals in digits stay together; separators inside
        numbers are dropped."""

    def cardinal(self, found: list[str], start: int = 0) -> tuple[int, int] | None:
        """The quantity that begins at token `start`, and the token after it; None if none begins there."""

    def ordinal(self, found: list[str], start: int = 0) -> tuple[int, int] | None:
        """The ordinal that begins at token `start`, and the token after it; None if none begins there."""

    def spoken_digits(self, text: str) -> str:
        """The digits in a text, in their order, with a plus sign in front if one is said. Other words are ignored."""

    def say_digits(self, digits: str) -> str:
        """Digits as words."""

    def read_aloud(self, text: str) -> str:
        """The words with which a text is read aloud: numbers, money, dates, units and abbreviations in words."""

    def with_numerals(self, text: str) -> str:
        """The text in lower case with its tens in digits."""

    def digits_for_words(self, text: str) -> str:
        """The text with its quantities in digits."""

    def in_digits(self, said: str) -> str:
        """What the user said, with quantities, money, durations and times of day in digits, cut to
        `matched_text.MAX_SAID`."""

    def is_dismissal(self, text: str) -> bool:
        """Whether a text only asks the assistant to stop what it is doing ("Stop.", "Oh, never mind")."""

    def asks_to_repeat(self, text: str) -> bool:
        """Whether a text only asks the assistant to say again what it said last ("Pardon?")."""

    def wanted_manner(self, text: str) -> Manner | None:
        """How the user wants to be spoken to, if that is what a text asks for ("Speak up, please.", "Not so fast, I'm
        writing!", "Say that again slowly")."""

    def pronunciations(self, text: str, said_before: str = "", *, trusted: bool = True) -> dict[str, str]:
        """How a text says that names are pronounced ("Siobhan (pronounced shi-VAWN)", "It's pronounced Shivon"): by the
        name, another spelling in lower case, or phonemes in IPA between slashes.

        Args:
            said_before: where the name is to be found that the text takes up.
            trusted: whether the user or the operator has written it. Otherwise only spellings count that are like the
                name's own: nobody else may have Alice called Bob.
        """

    def reports_task(self, sentence: str) -> bool | None:
        """Whether a sentence, of which only the beginning may be known, reports a timer, an alarm, a reminder or a
        note, or that one is set, cancelled or written; None if that is still open."""
        ...

    def claims_deed(self, sentence: str, verbs: Collection[str], things: Collection[str]) -> bool | None:
        """Whether a sentence, of which only the beginning may be known, says that the speaker has done what one of the
        verbs means ("I've unlocked it"), or that it has been done to one of the things ("The door is now unlocked").
        None if that depends on how it goes on."""

    def wants_length(self, text: str) -> bool:
        """Whether a text asks for what takes long to say ("Tell me a story.", "in detail")."""

    def time_parts(self, text: str) -> TimeParts | None:
        """The time of day, or the half of the day, that a text names; None if it names none."""

    def say_time(self, at: time) -> str:
        """A time of day in words."""

    def named_date(self, text: str, now: datetime, *, nearest: bool = False) -> date:
        """The day that a text names.

        Args:
            nearest: a day without a year is the nearest one, a `YearlessDay`; otherwise the next one.

        Raises:
            ValueError: it names none.
        """

    def is_named_date(self, text: str) -> bool:
        """Whether a text names a day."""

    def supposes_another_day(self, text: str) -> bool:
        """Whether a text supposes what day or time it is ("If today is Tuesday, …"), which may not be the present."""

    def date_parts(self, text: str, today: date, *, day_first: bool) -> DateParts | None:
        """The parts of a date that a text names, among other words; None if it names none.

        Args:
            day_first: whether "3/4" is the third of April.
        """

    def say_ordinal(self, number: int) -> str:
        """The number of a day of a month in words."""

    def say_date(self, day: date, *, with_year: bool = False) -> str:
        """A date in words, with its weekday."""


_PACKAGES: Mapping[str, str] = {"en": "agent.words.english"}


@cache
def language(name: str) -> Language:
    """A language by its ISO 639-1 code. Raises KeyError if there is none."""
    return cast(Language, import_module(_PACKAGES[name]))
