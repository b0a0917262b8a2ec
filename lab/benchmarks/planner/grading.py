"""Reads what an assistant said as values, and compares them with those that are right."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent.words.language import language

_ENGLISH = language("en")

CANNOT = "__cannot__"
"""In place of right values: facts are missing, or it cannot be done, and no value may be presented."""

_TOLERANCE = 0.005
"""Of numbers that are not exact."""

_CLOCK = re.compile(r"\b(\d{1,2})(?::(\d\d))? ?([ap])\.?m\b|\b(\d{1,2}):(\d\d)\b|\b(noon|midnight)\b")
_DATE = re.compile(rf"\b({'|'.join(_ENGLISH.MONTHS)}) (\d{{1,2}})(?:st|nd|rd|th)?(?:,? (\d{{4}}))?")
_NUMBER = re.compile(r"(?:minus |-)?\d+(?:\.\d+)?")
_REFUSES = re.compile(
    r"\b(?:can't|cannot|can not|unable|don't know|do not know|not enough|don't have|not possible|impossible|"
    r"isn't possible|undefined|not defined|unknown|sorry|depends|missing)\b|\?\s*$"
)


def values(text: str) -> list[str]:
    """The values in a text: numbers in digits, times as 15:30 (both, if the half of the day is open), dates without
    their year, and weekdays."""
    plain = re.sub(r"(?<=\d),(?=\d{3}\b)", "", _ENGLISH.digits_for_words(text.lower().replace("’", "'")))
    found: list[str] = []
    for match in _CLOCK.finditer(plain):
        found += _clock(match)
    for match in _DATE.finditer(plain):
        found.append(f"{_ENGLISH.MONTHS.index(match[1]) + 1:02}-{int(match[2]):02}")
        found += [match[1], match[2], *([match[3]] if match[3] else [])]
    found += [day for day in _ENGLISH.WEEKDAYS if day in plain]
    rest = _CLOCK.sub(" ", plain)
    return found + [number.replace("minus ", "-") for number in _NUMBER.findall(rest)]


def _clock(match: re.Match[str]) -> list[str]:
    if match[6]:
        return ["12:00" if match[6] == "noon" else "00:00"]
    if match[3]:
        hour = int(match[1]) % 12 + 12 * (match[3] == "p")
        return [f"{hour:02}:{match[2] or '00'}"]
    hour = int(match[4])
    return [f"{hour:02}:{match[5]}", f"{(hour + 12) % 24:02}:{match[5]}"]


def says(text: str, accepted: Sequence[str]) -> bool:
    """Whether a text presents one of the accepted values. Durations may be told in parts ("3 hours and 20 minutes")."""
    if list(accepted) == [CANNOT]:
        return not values(text) or bool(_REFUSES.search(text.lower()))
    found = [*values(text), *_durations(text)]
    plain = text.lower()
    return any(_is(value, wanted) for wanted in accepted for value in found) or any(
        re.search(rf"\b{re.escape(wanted.lower())}\b", plain) for wanted in accepted if not wanted[:1].isdigit()
    )


def says_wrong(text: str, accepted: Sequence[str]) -> bool:
    """Whether a text presents a value, and not a right one."""
    if list(accepted) == [CANNOT]:
        return bool(values(text)) and not _REFUSES.search(text.lower())
    return bool(values(text)) and not says(text, accepted) and not _REFUSES.search(text.lower())


def is_accepted(text: str, item: Mapping[str, Any]) -> bool:
    """Whether an answer matches a pattern of `accept_any` and none of `reject`, and is as long as `min_words` and
    `max_words` allow."""
    plain = " ".join(text.replace("’", "'").replace("‘", "'").replace("−", "-").split())
    if not item.get("min_words", 1) <= len(plain.split()) <= item.get("max_words", math.inf):
        return False
    found, rejected = (
        any(re.search(pattern, plain, re.IGNORECASE) for pattern in item.get(name, ()))
        for name in ("accept_any", "reject")
    )
    return found and not rejected


def _is(value: str, wanted: str) -> bool:
    if re.fullmatch(r"\d{4}-\d\d-\d\d", wanted):
        return value == wanted[5:]
    if ":" in wanted or ":" in value:
        return value.zfill(5) == wanted.zfill(5)
    try:
        return abs(float(value) - float(wanted)) <= _TOLERANCE * abs(float(wanted)) + 1e-9
    except ValueError:
        return value == wanted.lower()


def _durations(text: str) -> list[str]:
    """A duration in parts, in each of its units."""
    sizes = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
    parts = re.findall(r"(\d+(?:\.\d+)?) (second|minute|hour|day|week)s?\b", text.lower().replace(",", ""))
    total = sum(float(number) * sizes[unit] for number, unit in parts)
    return [f"{total / size:.6g}" for size in sizes.values()] if parts else []
