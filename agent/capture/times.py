"""A time of day as people say it: "half past two", "quarter to nine", "2:30 pm"."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import time
from typing import Any, ClassVar

from agent.capture.field import Field, Progress
from agent.words.language import TimeParts, language

_ENGLISH = language("en")


@dataclass(frozen=True, kw_only=True)
class Time(Field[TimeParts, time]):
    """A time of day. Its value is a `datetime.time`, in JSON `HH:MM`.

    Attributes:
        earliest, latest: the hours that are possible, which may tell the morning from the afternoon.
    """

    prompt: str = "At what time?"
    earliest: time = time(0)
    latest: time = time(23, 59)

    kind: ClassVar[str] = "time"
    schema: ClassVar[dict[str, Any]] = {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"}
    empty: ClassVar[TimeParts] = TimeParts()
    hint: ClassVar[str] = "Please say the time, for example: half past two."

    def hear(self, text: str, entry: TimeParts) -> TimeParts | None:
        heard = _ENGLISH.time_parts(text)
        if heard is None:
            return None
        if heard.hour is None:
            return replace(entry, afternoon=heard.afternoon)
        return replace(heard, afternoon=entry.afternoon if heard.afternoon is None else heard.afternoon)

    def correct(self, text: str, entry: TimeParts) -> TimeParts | None:
        """The half of the day stays as it was, unless the hours exclude that."""
        corrected = super().correct(text, entry)
        if corrected is None or corrected.hour is None or self._candidates(corrected):
            return corrected
        other_half = super().correct(text, replace(entry, afternoon=None))
        return other_half if other_half is not None and self._candidates(other_half) else corrected

    def press(self, keys: str, entry: TimeParts) -> TimeParts | None:
        hour, minute = (int(keys[:-2]), int(keys[-2:])) if len(keys) > 2 else (int(keys or "99"), 0)
        return TimeParts(hour, minute, hour >= 12 or None) if hour < 24 and minute < 60 and len(keys) <= 4 else None

    def progress(self, entry: TimeParts) -> Progress:
        if entry == TimeParts():
            return Progress.EMPTY
        return Progress.PARTIAL if entry.hour is None or len(self._candidates(entry)) > 1 else Progress.COMPLETE

    def ask_rest(self, entry: TimeParts) -> str:
        return "At what time?" if entry.hour is None else "In the morning or in the afternoon?"

    def value(self, entry: TimeParts) -> time:
        candidates = self._candidates(entry)
        if not candidates:
            raise ValueError(
                f"It has to be between {_ENGLISH.say_time(self.earliest)} and {_ENGLISH.say_time(self.latest)}."
            )
        return candidates[0]

    def _candidates(self, entry: TimeParts) -> list[time]:
        """The possible times that the entry may mean."""
        if entry.hour is None:
            return []
        if entry.hour > 12 or entry.hour == 0:
            hours = [entry.hour]
        else:
            hours = [entry.hour % 12 + 12 * half for half in (0, 1) if entry.afternoon in (None, bool(half))]
        return [at for hour in hours if self.earliest <= (at := time(hour, entry.minute)) <= self.latest]

    def read_back(self, entry: TimeParts, *, careful: bool) -> str:
        return _ENGLISH.say_time(self.value(entry))

    def to_json(self, value: time) -> str:
        return f"{value:%H:%M}"
