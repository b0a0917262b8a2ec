"""An amount of money as people say it: "twenty five dollars fifty", "$25.50". English."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

from agent.capture.corrections import without_denial
from agent.capture.field import Field, Progress
from agent.words.language import language

_ENGLISH = language("en")

_SCALES = {"hundred": 100, "thousand": 1000, "million": 1_000_000}
_UNITS = frozenset("dollar dollars euro euros pound pounds".split())
_MINOR = frozenset("cent cents penny pennies pence p".split())


@dataclass(frozen=True, kw_only=True)
class Amount(Field[Decimal | None, Decimal]):
    """An amount of money. Its value is a `Decimal` with two digits after the point, in JSON a string ("25.50").

    Attributes:
        unit: the currency in words, in the plural.
        least, most: the amounts that are possible.
    """

    prompt: str = "Which amount?"
    unit: str = "dollars"
    least: Decimal = Decimal("0.01")
    most: Decimal = Decimal("1000000")

    kind: ClassVar[str] = "amount"
    schema: ClassVar[dict[str, Any]] = {"type": "string", "pattern": r"^[0-9]+\.[0-9]{2}$"}
    empty: ClassVar[None] = None

    @property
    def hint(self) -> str:
        return f"Please say the amount in {self.unit}, for example: twenty five fifty. Or type it in cents."

    def hear(self, text: str, entry: Decimal | None) -> Decimal | None:
        plain = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text.lower())
        if re.search(r"(\d\.\d+|\bpoint .*) (hundred|thousand|million)\b", plain):
            plain = _ENGLISH.digits_for_words(plain)  # "one point five million" is 1500000
            if "point" in plain.split():
                return None
        if match := re.search(r"(\d+)[.:](\d{2})\b", plain):
            return _amount(int(match[1]), int(match[2]))
        if match := re.search(r"(\d+)\.(\d)\b", plain):
            return _amount(int(match[1]), 10 * int(match[2]))
        found = _ENGLISH.tokens(plain.replace("-", " "))
        for i in range(len(found)):
            number = _ENGLISH.cardinal(found, i)
            if number is not None and not (found[i] in ("a", "an") and number[1] == i + 1):
                return self._from(found, *number)
        return None

    def _from(self, found: list[str], number: int, end: int) -> Decimal:
        """The amount whose first number ends before token `end`."""
        following = found[end] if end < len(found) else ""
        if following in _MINOR:
            return _amount(0, number)
        half = found[end : end + 3] == ["and", "a", "half"]
        if half:
            scale = _SCALES.get(found[end + 3], 1) if end + 3 < len(found) else 1
            return _amount(number, 50) * scale
        start = end
        while start < len(found) and _ENGLISH.cardinal(found, start) is None:
            start += 1
        cents = _ENGLISH.cardinal(found, start) if start < len(found) else None
        if found[end:start] and "point" in found[end:start] and cents is not None:
            return Decimal(f"{number}.{''.join(_decimals(found[start:]))}").quantize(Decimal("0.01"))
        joined = not set(found[end:start]) - {*_UNITS, "and", *self.unit.split()}
        if cents is not None and cents[0] < 100 and joined:
            return _amount(number, cents[0])
        return _amount(number, 0)

    def press(self, keys: str, entry: Decimal | None) -> Decimal | None:
        return Decimal(int(keys)) / 100 if keys else None

    def correct(self, text: str, entry: Decimal | None) -> Decimal | None:
        rest = without_denial(text)
        words = re.findall(r"\w+|\$", rest)
        names_unit = "$" in words or all(word in words for word in self.unit.split())
        if entry is not None and ("cent" in words or "cents" in words) and not names_unit:
            cents = self.hear(rest, None)
            return None if cents is None else Decimal(int(entry)) + cents % 1
        return self.hear(rest, None)

    def progress(self, entry: Decimal | None) -> Progress:
        return Progress.EMPTY if entry is None else Progress.POSSIBLE

    def value(self, entry: Decimal | None) -> Decimal:
        assert entry is not None  # an empty entry has no value
        if not self.least <= entry <= self.most:
            raise ValueError(f"The amount has to be between {self._say(self.least)} and {self._say(self.most)}.")
        return entry.quantize(Decimal("0.01"))

    def read_back(self, entry: Decimal | None, *, careful: bool) -> str:
        return self._say(self.value(entry))

    def _say(self, amount: Decimal) -> str:
        whole, cents = int(amount), int(amount * 100 % 100)
        unit = self.unit[:-1] if whole == 1 and self.unit.endswith("s") else self.unit
        minor = "1 cent" if cents == 1 else f"{cents} cents"
        if not cents:
            return f"{whole} {unit}"
        return f"{whole} {unit} and {minor}" if whole else minor

    def to_json(self, value: Decimal) -> str:
        return f"{value:.2f}"


def _amount(whole: int, cents: int) -> Decimal:
    return (Decimal(whole) + Decimal(cents) / 100).quantize(Decimal("0.01"))


def _decimals(found: list[str]) -> list[str]:
    """The digits after "point"."""
    digits = []
    for i in range(len(found)):
        number = _ENGLISH.cardinal(found, i)
        if number is None:
            break
        digits.append(str(number[0]) if number[1] == i + 1 else str(number[0])[:1])
    return digits[:2]
