"""A time of day as people say it: "half past two", "quarter to nine", "2:30 pm". English."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import time
from typing import Any, ClassVar

from agent.capture.corrections import without_denial
from agent.capture.field import Field, Progress
from agent.spoken_numbers import cardinal, tokens

_MORNING = re.compile(r"\b(?:a\.? ?m\b|in the morning|morning)")
_AFTERNOON = re.compile(r"\b(?:p\.? ?m\b|in the (?:afternoon|evening)|afternoon|evening|at night|tonight)")
_PAST = re.compile(
    r"\b(half|(?:a )?quarter|[a-z]+(?: [a-z]+)?|\d+)(?: minutes?)? (past|after|to|before|till|of) ([a-z]+|\d+)\b"
)


@dataclass(frozen=True)
class TimeEntry:
    """A time as heard so far. `hour` is as it was said; `afternoon` is None while nobody has said which half."""

    hour: int | None = None
    minute: int = 0
    afternoon: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Time(Field[TimeEntry, time]):
    """A time of day. Its value is a `datetime.time`, in JSON `HH:MM`.

    Attributes:
        earliest, latest: the hours that are possible, which may tell the morning from the afternoon.
    """

    prompt: str = "At what time?"
    earliest: time = time(0)
    latest: time = time(23, 59)

    kind: ClassVar[str] = "time"

    @property
    def empty(self) -> TimeEntry:
        return TimeEntry()

    @property
    def hint(self) -> str:
        return "Please say the time, for example: half past two."

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"}

    def hear(self, text: str, entry: TimeEntry) -> TimeEntry | None:
        plain = " ".join(text.lower().replace("’", "'").split())
        half = False if _MORNING.search(plain) else True if _AFTERNOON.search(plain) else None
        found = _clock(plain)
        if found is None:
            return None if half is None else replace(entry, afternoon=half)
        if found.afternoon is not None:
            half = found.afternoon
        return replace(found, afternoon=entry.afternoon if half is None else half)

    def press(self, keys: str, entry: TimeEntry) -> TimeEntry | None:
        hour, minute = (int(keys[:-2]), int(keys[-2:])) if len(keys) > 2 else (int(keys or "99"), 0)
        return TimeEntry(hour, minute, hour >= 12 or None) if hour < 24 and minute < 60 and len(keys) <= 4 else None

    def correct(self, text: str, entry: TimeEntry) -> TimeEntry | None:
        return self.hear(without_denial(text), entry)

    def progress(self, entry: TimeEntry) -> Progress:
        if entry == TimeEntry():
            return Progress.EMPTY
        return Progress.PARTIAL if entry.hour is None or len(self._candidates(entry)) > 1 else Progress.COMPLETE

    def ask_rest(self, entry: TimeEntry) -> str:
        return "At what time?" if entry.hour is None else "In the morning or in the afternoon?"

    def value(self, entry: TimeEntry) -> time:
        candidates = self._candidates(entry)
        if not candidates:
            raise ValueError(f"It has to be between {say_time(self.earliest)} and {say_time(self.latest)}.")
        return candidates[0]

    def _candidates(self, entry: TimeEntry) -> list[time]:
        """The possible times that the entry may mean."""
        if entry.hour is None:
            return []
        if entry.hour > 12 or entry.hour == 0:
            hours = [entry.hour]
        else:
            hours = [entry.hour % 12 + 12 * half for half in (0, 1) if entry.afternoon in (None, bool(half))]
        return [at for hour in hours if self.earliest <= (at := time(hour, entry.minute)) <= self.latest]

    def read_back(self, entry: TimeEntry, *, careful: bool) -> str:
        return say_time(self.value(entry))

    def to_json(self, value: time) -> str:
        return f"{value:%H:%M}"


def _clock(plain: str) -> TimeEntry | None:
    """The hour and the minute that a text names."""
    if re.search(r"\b(?:noon|midday)\b", plain):
        return TimeEntry(12, 0, afternoon=True)
    if "midnight" in plain:
        return TimeEntry(0, 0, afternoon=False)
    if match := re.search(r"\b(\d{1,2})[:.](\d{2})\b", plain):
        return _checked(int(match[1]), int(match[2]))
    if match := _PAST.search(plain):
        hour = cardinal(tokens(match[3]))
        minutes = _minutes(match[1])
        if hour is not None and minutes is not None:
            if match[2] in ("past", "after"):
                return _checked(hour[0], minutes)
            return _checked(hour[0] - 1 or 12, 60 - minutes)
    if match := re.search(r"\bhalf (\w+)\b", plain):  # British: half two
        hour = cardinal(tokens(match[1]))
        return None if hour is None else _checked(hour[0], 30)
    found = tokens(plain)
    for i in range(len(found)):
        hour = cardinal(found, i)
        if hour is None:
            continue
        if found[i].isdigit() and len(found[i]) in (3, 4):  # 1430
            return _checked(int(found[i][:-2]), int(found[i][-2:]))
        start = hour[1] + 1 if found[hour[1] : hour[1] + 1] in (["oh"], ["o"], ["hundred"]) else hour[1]
        minute = cardinal(found, start)
        return _checked(hour[0], minute[0] if minute is not None and minute[0] < 60 else 0)
    return None


def _minutes(said: str) -> int | None:
    if said == "half":
        return 30
    if said.endswith("quarter"):
        return 15
    for words in (said.split(), said.split()[-1:]):
        number = cardinal(words)
        if number is not None and number[1] == len(words) and number[0] < 60:
            return number[0]
    return None


def _checked(hour: int, minute: int) -> TimeEntry | None:
    return TimeEntry(hour, minute) if 0 <= hour < 24 and 0 <= minute < 60 else None


def say_time(at: time) -> str:
    """A time in words: "2:30 in the afternoon"."""
    if (at.hour, at.minute) in ((12, 0), (0, 0)):
        return "noon" if at.hour else "midnight"
    part = "in the morning" if at.hour < 12 else "in the afternoon" if at.hour < 18 else "in the evening"
    minute = f":{at.minute:02}" if at.minute else " o'clock"
    return f"{(at.hour - 1) % 12 + 1}{minute} {part}"
