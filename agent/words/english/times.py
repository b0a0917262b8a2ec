"""Times of day and durations as people say them: "half past two", "quarter to nine", "an hour and a half"."""

from __future__ import annotations

import re
from datetime import time
from decimal import Decimal

from agent.matched_text import for_patterns
from agent.words.english.numbers import cardinal, digits_for_words, tokens
from agent.words.language import TimeParts

_PARTS = {
    "half": Decimal("0.5"), "quarter": Decimal("0.25"), "three quarters": Decimal("0.75"),
    "3 quarters": Decimal("0.75"), "three quarter": Decimal("0.75"), "3 quarter": Decimal("0.75"),
}  # fmt: skip

_MORNING = re.compile(r"(?<=\d) ?a\.? ?m\b|\b(?<!\bi )a\.? ?m\b(?! i\b)|\bmorning")
_AFTERNOON = re.compile(r"(?:\b|(?<=\d))p\.? ?m\b|\b(?:afternoon|evening|at night|tonight)")
_PAST = re.compile(
    r"\b(half|(?:a )?quarter|[a-z]+(?: [a-z]+)?|\d+)(?: minutes?)? (past|after|to|before|till|of) ([a-z]+|\d+)\b"
)
_CLOCK = re.compile(
    r"(?:(?<!and )\ba |(?<!\ba )\b)(half|quarter) (past|after|to|till) (\d{1,2})\b(?! (?:minutes?|hours?|percent))",
    re.IGNORECASE,
)
_O_CLOCK = re.compile(r"\b(\d{1,2})(:00)? ?o'? ?clock\b", re.IGNORECASE)
_AND_PART = re.compile(
    r"(?<![:.])\b(\d+)(?<!00) and (?:an? )?(half|quarter|three quarters?|3 quarters?)\b", re.IGNORECASE
)
_MERIDIEM = re.compile(r"\b(\d{1,2}(?::\d\d)?) ?([ap])\.? ?m\b\.?", re.IGNORECASE)
_LENGTH = re.compile(
    r"\b(an?|\d+) (hour|minute|day|week|month|year)s? and (?:an? )?(half|quarter|three quarters|3 quarters)\b(?! of)",
    re.IGNORECASE,
)
_POINT = re.compile(r"\b(\d+) point (\d+(?: \d)*)\b", re.IGNORECASE)
_PART_OF = re.compile(r"\b(?:(half|a quarter of|three quarters of|3 quarters of) an? hour)\b", re.IGNORECASE)

_NIGHT_ENDS = 5
"""The hour up to which "at night" is after midnight."""

_CENTS = re.compile(
    r"([$€£]?)\b(\d{1,9}) ?(dollars?|euros?|pounds?|[$€£])?,? and (\d\d?) (?:cents?|pence)\b", re.IGNORECASE
)
_UNITS = {"$": "dollars", "€": "euros", "£": "pounds"}


def in_digits(said: str) -> str:
    """See `Language`: "quarter past six" is 6:15."""
    text = digits_for_words(for_patterns(said.replace("’", "'")))
    text = _CENTS.sub(_money, text)
    text = _CLOCK.sub(_clock, text)
    text = _LENGTH.sub(_length, text)
    text = _PART_OF.sub(lambda match: f"{_minutes(match[1])} minutes", text)
    text = _AND_PART.sub(lambda match: f"{int(match[1]) + _part(match[2])}", text)  # not "a million and a half"
    text = _POINT.sub(lambda match: f"{match[1]}.{match[2].replace(' ', '')}", text)
    text = _O_CLOCK.sub(r"\1:00", text)
    return _MERIDIEM.sub(lambda match: f"{match[1]} {match[2].lower()}m", text)


def _money(match: re.Match[str]) -> str:
    """Dollars and cents are one number: small models compute with the first one alone."""
    unit = match[3] or match[1]
    return f"{match[2]}.{int(match[4]):02} {_UNITS.get(unit, unit)}" if unit else match[0]


def _clock(match: re.Match[str]) -> str:
    hour, minute = _past_or_to(_minutes(match[1]), match[2].lower(), int(match[3]))
    return f"{hour}:{minute:02}"


def _past_or_to(minutes: int, side: str, hour: int) -> tuple[int, int]:
    """The hour and the minute of a time that is named by the minutes past an hour, or to it."""
    return (hour, minutes) if side in ("past", "after") else (hour - 1 or 12, 60 - minutes)


def _length(match: re.Match[str]) -> str:
    whole = int(match[1]) if match[1].isdigit() else 1
    return f"{whole + _part(match[3])} {match[2]}s"


def _part(name: str) -> Decimal:
    return _PARTS[name.lower().removeprefix("a ").removesuffix(" of")]


def _minutes(name: str) -> int:
    """A part of an hour in minutes."""
    return round(60 * _part(name))


def time_parts(text: str) -> TimeParts | None:
    """See `Language`."""
    plain = " ".join(re.sub(r"(?<=[a-z])-(?=[a-z])", " ", text.lower().replace("’", "'")).split())
    half = False if _MORNING.search(plain) else True if _AFTERNOON.search(plain) else None
    found = _time_in(plain)
    if found is None:
        return None if half is None else TimeParts(afternoon=half)
    if half and found.hour is not None and found.hour % 12 < _NIGHT_ENDS and re.search(r"night\b", plain):
        half = re.search(r"\d ?p\.? ?m\b|afternoon|evening", plain) is not None
    return found if found.afternoon is not None or half is None else TimeParts(found.hour, found.minute, half)


def _time_in(plain: str) -> TimeParts | None:
    """The hour and the minute that a text names."""
    if named := re.search(r"\b(noon|midday|midnight)\b", plain):
        return _noon_or_midnight(plain, named[0])
    if match := re.search(r"\b(\d{1,2})[:.](\d{2})(?!\d)", plain):
        return _checked(int(match[1]), int(match[2]))
    if match := _PAST.search(plain):
        hour = cardinal(tokens(match[3]))
        minutes = _minutes_said(match[1])
        if hour is not None and minutes is not None:
            return _checked(*_past_or_to(minutes, match[2], hour[0]))
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
        if found[i] == "zero" and (digit := cardinal(found, i + 1)) and digit[0] >= 100:  # zero eight hundred
            hour = digit
        if hour[0] >= 100:  # fifteen hundred hours
            return _checked(*divmod(hour[0], 100))
        if found[i] == "zero" and cardinal(found, i + 2):  # zero eight thirty
            continue
        start = hour[1] + 1 if found[hour[1] : hour[1] + 1] in (["oh"], ["o"], ["hundred"]) else hour[1]
        minute = cardinal(found, start)
        return _checked(hour[0], minute[0] if minute is not None and minute[0] < 60 else 0)
    return None


def _noon_or_midnight(plain: str, name: str) -> TimeParts:
    """Noon or midnight, or the time that a text names by minutes past one of them, or to it."""
    match = _PAST.search(plain)
    minutes = _minutes_said(match[1]) if match and match[3] == name else None
    hour, minute = 24 if name == "midnight" else 12, 0
    if match and minutes is not None:
        hour, minute = _past_or_to(minutes, match[2], hour)
    return TimeParts(hour % 24, minute, afternoon=12 <= hour < 24)


def _minutes_said(said: str) -> int | None:
    if said == "half":
        return 30
    if said.endswith("quarter"):
        return 15
    named = said.removesuffix(" minutes").removesuffix(" minute").split()
    for words in (named, named[-1:]):
        number = cardinal(words)
        if number is not None and number[1] == len(words) and number[0] < 60:
            return number[0]
    return None


def _checked(hour: int, minute: int) -> TimeParts | None:
    return TimeParts(hour, minute) if 0 <= hour < 24 and 0 <= minute < 60 else None


def say_time(at: time) -> str:
    """See `Language`: "2:30 in the afternoon"."""
    if (at.hour, at.minute) in ((12, 0), (0, 0)):
        return "noon" if at.hour else "midnight"
    part = "in the morning" if at.hour < 12 else "in the afternoon" if at.hour < 18 else "in the evening"
    minute = f":{at.minute:02}" if at.minute else " o'clock"
    return f"{(at.hour - 1) % 12 + 1}{minute} {part}"
