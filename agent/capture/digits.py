"""Fields of digits: numbers of a given length, and telephone numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from agent.capture.corrections import corrected, without_denial
from agent.capture.field import Field, Progress
from agent.words.language import language

_ENGLISH = language("en")

_LONG_NUMBER = 8
"""A number of so many digits that lacks one or two has probably lost them on the way."""


@dataclass(frozen=True, kw_only=True)
class Digits(Field[str, str]):
    """A number that is dictated digit by digit, such as a customer number. Its value is a string of digits.

    Attributes:
        length: how many digits it has.
        max_length: how many it may have, if `length` is the least.
        name: what it is called: "customer number".
    """

    length: int
    max_length: int | None = None
    name: str = "number"

    kind: ClassVar[str] = "number"
    key_by_key: ClassVar[bool] = True

    @property
    def longest(self) -> int:
        """The most digits that it may have."""
        return self.max_length or self.length

    @property
    def hint(self) -> str:
        return f"Please say the {self.name} digit by digit, or type it and press the hash key."

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^[0-9]{{{self.length},{self.longest}}}$"}

    def hear(self, text: str, entry: str) -> str | None:
        digits = _ENGLISH.spoken_digits(text).lstrip("+")
        return self._join(entry, digits) if digits else None

    def _join(self, entry: str, digits: str) -> str:
        """More digits, which are the number from its beginning if they are all of it."""
        digits = self._once(digits)
        whole = self.progress(digits) in (Progress.POSSIBLE, Progress.COMPLETE)
        return digits if whole and len(entry + digits) > self.longest else entry + digits

    def _once(self, digits: str) -> str:
        """The number alone, if more follows that repeats its beginning: a caller says it twice, or a recognizer runs
        on."""
        rest = digits[self.longest : self.longest + 4]
        return digits[: self.longest] if digits[:3] in rest else digits

    def press(self, keys: str, entry: str) -> str | None:
        return entry + keys

    def correct(self, text: str, entry: str) -> str | None:
        digits = entry.removeprefix("+")
        after = corrected(digits, text, _digits_alone)
        return entry.removesuffix(digits) + after if after else self._group(text, entry)

    def _group(self, text: str, entry: str) -> str | None:
        """A group of the number by its place: "the middle three are 3 4 5"."""
        return None

    def progress(self, entry: str) -> Progress:
        if len(entry) < self.length:
            return Progress.PARTIAL if entry else Progress.EMPTY
        return Progress.COMPLETE if len(entry) >= self.longest else Progress.POSSIBLE

    def ask_rest(self, entry: str) -> str:
        missing = self.length - len(entry)
        if missing > 2 or self.length < _LONG_NUMBER:
            return f"{self._in_groups(entry)}. Please go on."
        count = "One digit is" if missing == 1 else "Two digits are"
        return f"{self._in_groups(entry)}. {count} missing. Please go on, or say the whole {self.name} again."

    def value(self, entry: str) -> str:
        if len(entry) > self.longest:
            lengths = str(self.length) if self.longest == self.length else f"{self.length} to {self.longest}"
            raise ValueError(f"I heard {len(entry)} digits, but the {self.name} has {lengths}.")
        return entry

    def read_back(self, entry: str, *, careful: bool) -> str:
        return self._in_groups(entry)

    def _in_groups(self, entry: str) -> str:
        return ", ".join(_ENGLISH.say_digits(group) for group in self._groups(entry))

    def _groups(self, digits: str) -> list[str]:
        """Groups of three, the last of up to four: the most that people keep in mind at once."""
        groups = [digits[start : start + 3] for start in range(0, len(digits), 3)]
        if len(groups) > 1 and len(groups[-1]) == 1:
            groups[-2:] = [groups[-2] + groups[-1]]
        return groups


@dataclass(frozen=True, kw_only=True)
class PhoneNumber(Digits):
    """A telephone number. Its value is a string of digits, with a plus sign in front if it was said.

    Attributes:
        length, max_length: digits without country code; 10 as in North America. A number with a plus sign has 8 to 15
            (ITU-T E.164).
        country_code: digits that may come first, and are left out of the value.
    """

    prompt: str = "What is your phone number?"
    length: int = 10
    name: str = "phone number"
    country_code: str = "1"

    kind: ClassVar[str] = "phone number"

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^([0-9]{{{self.length},{self.longest}}}|\\+[0-9]{{8,15}})$"}

    def hear(self, text: str, entry: str) -> str | None:
        digits = _ENGLISH.spoken_digits(text)
        if digits.startswith("+") and not entry:
            return digits
        digits = digits.lstrip("+")
        return self._join(entry, self._national(digits)) if digits else None

    def _national(self, digits: str) -> str:
        code = self.country_code
        whole = self.length <= len(digits) - len(code) <= self.longest and len(digits) > self.longest
        return digits[len(code) :] if code and whole and digits.startswith(code) else digits

    def press(self, keys: str, entry: str) -> str | None:
        return self._national(entry + keys)

    def _group(self, text: str, entry: str) -> str | None:
        match = re.match(r"(?:the |my )?area code (?:is|should be|was) (.+)$", without_denial(text))
        area = _ENGLISH.spoken_digits(match[1]) if match else ""
        return area + entry[3:] if len(area) == 3 <= len(entry) and not entry.startswith("+") else None

    def progress(self, entry: str) -> Progress:
        if not entry.startswith("+"):
            return super().progress(entry)
        return Progress.PARTIAL if len(entry) < 9 else Progress.POSSIBLE if len(entry) < 16 else Progress.COMPLETE

    def value(self, entry: str) -> str:
        if entry.startswith("+"):
            if len(entry) > 16:
                raise ValueError("A phone number has at most 15 digits.")
            return entry
        return super().value(entry)

    def _groups(self, digits: str) -> list[str]:
        if digits.startswith("+"):
            return ["+", *super()._groups(digits[1:])]
        if len(digits) == 7:
            return [digits[:3], digits[3:]]
        if len(digits) > 10:
            return super()._groups(digits)
        return [group for group in (digits[:3], digits[3:6], digits[6:]) if group]


def _digits_alone(text: str) -> str:
    """The digits of a text that names nothing else."""
    return _ENGLISH.spoken_digits(text).lstrip("+")
