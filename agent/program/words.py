"""The user's words as a program's prompt has them: numbers and times of day in digits. English."""

from __future__ import annotations

import re

from agent.matched_text import for_patterns
from agent.spoken_numbers import digits_for_words

_PARTS = {"half": 0.5, "quarter": 0.25, "three quarters": 0.75, "3 quarters": 0.75}

_CLOCK = re.compile(
    r"\b(?:a )?(half|quarter) (past|after|to) (\d{1,2})\b(?! (?:minutes?|hours?|percent))", re.IGNORECASE
)
_O_CLOCK = re.compile(r"\b(\d{1,2})(:00)? ?o'? ?clock\b", re.IGNORECASE)
_AND_PART = re.compile(r"\b(\d+) and (?:an? )?(half|quarter|three quarters|3 quarters)\b", re.IGNORECASE)
_MERIDIEM = re.compile(r"\b(\d{1,2}(?::\d\d)?) ?([ap])\.? ?m\b\.?", re.IGNORECASE)
_LENGTH = re.compile(
    r"\b(an?|\d+) (hour|minute|day|week|month|year)s? and (?:an? )?(half|quarter|three quarters|3 quarters)\b(?! of)",
    re.IGNORECASE,
)
_POINT = re.compile(r"\b(\d+) point (\d+(?: \d)*)\b", re.IGNORECASE)
_PART_OF = re.compile(r"\b(?:(half|a quarter of|three quarters of|3 quarters of) an? hour)\b", re.IGNORECASE)


def in_digits(said: str) -> str:
    """What the user said, with numbers and times of day in digits: "quarter past six" is 6:15."""
    text = digits_for_words(for_patterns(said.replace("’", "'")))
    text = _LENGTH.sub(_length, text)
    text = _PART_OF.sub(lambda match: f"{_minutes(match[1])} minutes", text)
    text = _AND_PART.sub(lambda match: f"{int(match[1]) + _part(match[2]):g}", text)
    text = _POINT.sub(lambda match: f"{match[1]}.{match[2].replace(' ', '')}", text)
    text = _CLOCK.sub(_clock, text)
    text = _O_CLOCK.sub(r"\1:00", text)
    return _MERIDIEM.sub(lambda match: f"{match[1]} {match[2].lower()}m", text)


def _clock(match: re.Match[str]) -> str:
    hour, minute = int(match[3]), _minutes(match[1])
    if match[2].lower() == "to":
        hour, minute = (hour - 1) or 12, 60 - minute
    return f"{hour}:{minute:02}"


def _length(match: re.Match[str]) -> str:
    whole = int(match[1]) if match[1].isdigit() else 1
    return f"{whole + _part(match[3]):g} {match[2]}s"


def _part(name: str) -> float:
    return _PARTS[name.lower().removeprefix("a ").removesuffix(" of")]


def _minutes(name: str) -> int:
    """A part of an hour in minutes."""
    return round(60 * _part(name))
