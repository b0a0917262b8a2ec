"""Durations and times as people say them: "an hour and a half", "at half past five", "tomorrow at nine". English."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from agent.matched_text import for_patterns

_SECONDS = {"second": 1, "sec": 1, "s": 1, "minute": 60, "min": 60, "m": 60, "hour": 3600, "hr": 3600, "h": 3600,
            "day": 86_400, "week": 604_800}  # fmt: skip
_NUMBERS = {
    word: number
    for number, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen".split()
    )
} | {word: 10 * n for n, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)}
_LARGE = {"thousand": 1000, "million": 1_000_000, "billion": 1_000_000_000}
_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
_ONES = "one|two|three|four|five|six|seven|eight|nine"
_SMALL = rf"(?:(?:{_TENS})(?:[ -](?:{_ONES})\b)?|{'|'.join(sorted(_NUMBERS, key=len, reverse=True))})\b"
_HUNDREDS = rf"(?:(?:(?:{_SMALL}|\d+|an?) )?hundred\b(?:(?: and)? {_SMALL})?|{_SMALL})"
_LARGE_NUMBER = rf"(?:{_HUNDREDS}|\d+|an?) (?:{'|'.join(_LARGE)})\b"
_NUMBER = re.compile(
    rf"\b(?:{_LARGE_NUMBER}(?:(?: and|,)? (?={_HUNDREDS}))?)+(?:{_HUNDREDS})?|\b{_HUNDREDS}", re.IGNORECASE
)
_ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth twentieth twenty-first twenty-second twenty-third twenty-fourth "
    "twenty-fifth twenty-sixth twenty-seventh twenty-eighth twenty-ninth thirtieth thirty-first"
).split()
WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
MONTHS = "january february march april may june july august september october november december".split()
_MONTH = rf"(?:{'|'.join(MONTHS)})"
_ORDINAL = rf"({'|'.join(word.replace('-', '[- ]') for word in reversed(_ORDINALS))})"
_NAMED_HOURS = {"noon": 12, "midday": 12, "midnight": 0}
_DAY_PARTS = {"morning": 9, "afternoon": 15, "evening": 19, "tonight": 20, "night": 21}

_FEASTS = {
    "christmas eve": (12, 24), "christmas": (12, 25), "new year's eve": (12, 31), "new years eve": (12, 31),
    "new year": (1, 1), "valentine": (2, 14), "halloween": (10, 31),
}  # fmt: skip

_ANY_CLOCK = re.compile(
    r"\b(?:noon|midday|midnight|(?:half|(?:a )?quarter|\d{1,2}) (?:past|to) \d{1,2}|\d{1,2}[:.]\d{2}|"
    r"(?:(?<=at )|(?<=is )|(?<=it s )|(?<=from )|(?<=until )|(?<=after ))\d{1,2} [0-5]\d|\d{1,2}(?= ?[ap]\.?m\b)|"
    r"(?:(?<=at )|(?<=is )|(?<=and )|(?<=to )|(?<=from )|(?<=until ))\d{1,2}(?=$| (?:in|and|to|until|o)\b|[.,?]))"
)
"""A time of day, in digits."""

_UNIT_OF_TIME = r"(?:seconds?|minutes?|hours?|days?|weeks?)"
_ANY_DURATION = re.compile(
    rf"\b(?:(?:\d+(?:\.\d+)?(?: and a half)?|an?|half an?|(?:a )?quarter of an) {_UNIT_OF_TIME}"
    rf"(?: and a half| and a quarter)?)(?: and (?=\d+ {_UNIT_OF_TIME}))?"
)
"""A duration, or one of its parts."""

MAX_AHEAD = timedelta(days=366)
"""How far ahead a reminder may be."""


class UnknownTime(ValueError):
    """Not a duration or a time that is understood."""


def parse_duration(text: str) -> timedelta:
    """ "90 seconds", "an hour and a half", "2 h 30 min". Raises UnknownTime."""
    plain = _digits(text)
    plain = re.sub(r"\b(\d+) and a half (\w+)", r"\1.5 \2", plain)
    plain = re.sub(r"\b(\w+?)s? and a half\b", r"\1 and 0.5 \1", plain)
    plain = re.sub(r"\bhalf (an?|the) ", "0.5 ", plain)
    plain = re.sub(r"\b(?:a )?quarter (?:of )?an? ", "0.25 ", plain)
    plain = re.sub(r"\b(an?|one)\b(?= \w)", "1", plain)
    found = re.findall(r"(?<!\d)(\d++(?:\.\d++)?+) ?-? ?([a-z]+?)s?\b", plain)
    known = [(float(number), _SECONDS[unit]) for number, unit in found if unit in _SECONDS]
    if not known and re.fullmatch(r"0\.5 minutes?", plain):
        known = [(0.5, 60)]
    seconds = sum(number * unit for number, unit in known)
    if not known or seconds <= 0:
        raise UnknownTime(f"{text!r} is not a duration: give one such as '10 minutes'.")
    if seconds > MAX_AHEAD.total_seconds():
        raise UnknownTime("More than a year ahead is too far.")
    return timedelta(seconds=seconds)


def parse_time(text: str, now: datetime) -> datetime:
    """ "in 20 minutes", "at 5 pm", "tomorrow at 9:30", "on Friday", "half past six". The next such time after `now`.

    Raises:
        UnknownTime: it is not understood, or has passed.
    """
    plain = _digits(text)
    if re.match(r"^(in|after)\b|.*\bfrom now\b", plain):
        return now + parse_duration(plain)
    day = _day(plain, now)
    clock = _clock(plain)
    if clock is None and day is None:
        return now + parse_duration(plain)
    hour, minute, certain = clock if clock is not None else (9, 0, True)
    moment = (day or now).replace(hour=hour, minute=minute, second=0, microsecond=0)
    if not certain and hour < 12 and (moment <= now or (day is not None and hour < 7)):
        moment += timedelta(hours=12)  # "at five" is the next five o'clock
    if day is None and moment <= now:
        moment += timedelta(hours=12) if not certain and hour >= 12 else timedelta(days=1)
    if moment <= now:
        raise UnknownTime(f"{text!r} has already passed.")
    if moment - now > MAX_AHEAD:
        raise UnknownTime("More than a year ahead is too far.")
    return moment


def plain_words(text: str) -> str:
    """Lower-case text with number words as digits."""
    return _digits(text)


def clock_times(plain: str) -> list[tuple[int, int, bool]]:
    """Every time of day in `plain_words`: hour, minute, and whether it is certain which half of the day is meant."""
    found = list(_ANY_CLOCK.finditer(plain))
    ends = [*(match.start() for match in found[1:]), *[len(plain)] * bool(found)]
    times = []
    for match, end in zip(found, ends, strict=True):
        digits = re.sub(r"^(\d{1,2}) (\d{2})$", r"\1:\2", match[0])
        spoken = re.fullmatch(r"\d{1,2}", digits) is not None
        clock = _clock(f"{'at ' if spoken else ''}{digits}{plain[match.end() : end]}")
        if clock is not None:
            times.append(clock)
    return times


def clock_spans(plain: str) -> list[tuple[int, int]]:
    """Where the times of day are in `plain_words`."""
    return [match.span() for match in _ANY_CLOCK.finditer(plain)]


def duration_spans(plain: str) -> list[tuple[int, int]]:
    """Where the durations are in `plain_words`."""
    return [match.span() for match in _ANY_DURATION.finditer(plain)]


def named_day(plain: str, now: datetime) -> datetime | None:
    """The next day that `plain_words` name: a weekday, a date or a feast. Raises UnknownTime for an impossible date."""
    for name, (month, day) in _FEASTS.items():
        if name in plain:
            feast = now.replace(month=month, day=day)
            return feast if feast.date() >= now.date() else feast.replace(year=now.year + 1)
    return _day(plain, now)


def spoken_duration(duration: timedelta) -> str:
    """A duration as people say it, with its two largest units."""
    rest, parts = round(duration.total_seconds()), []
    for name, size in (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {name}{'s' if count > 1 else ''}")
    return " and ".join(parts[:2]) or "less than a second"


def digits_for_words(text: str) -> str:
    """Text with number words as digits: "two hundred and fifty" is 250, and "three forty-five" stays two numbers."""
    return _NUMBER.sub(lambda match: str(_value(match[0].lower())), text)


def _digits(text: str) -> str:
    """Lower-case text with number words as digits, as long as patterns may read."""
    plain = re.sub(r"[^\w:.\- ]", " ", for_patterns(text.lower()))
    plain = re.sub(rf"\b({_MONTH}) (?:the )?{_ORDINAL}\b", lambda date: f"{date[1]} {_ordinal(date[2])}", plain)
    plain = re.sub(rf"\b{_ORDINAL} of ({_MONTH})\b", lambda date: f"{_ordinal(date[1])} {date[2]}", plain)
    plain = digits_for_words(plain)
    return " ".join(plain.replace("o'clock", "").replace("o clock", "").split())


def _ordinal(word: str) -> int:
    return _ORDINALS.index(word.replace(" ", "-")) + 1


def _value(words: str) -> int:
    """The value of a number in words."""
    total = group = 0
    for word in re.findall(r"[a-z]+|\d+", words):
        if word == "hundred":
            group = (group or 1) * 100
        elif word in _LARGE:
            total, group = total + (group or 1) * _LARGE[word], 0
        elif word not in ("and", "a", "an"):
            group += _NUMBERS[word] if word in _NUMBERS else int(word)
    return total + group


def _day(plain: str, now: datetime) -> datetime | None:
    """The day that a time names, if it does."""
    if "day after tomorrow" in plain:
        return now + timedelta(days=2)
    if "tomorrow" in plain:
        return now + timedelta(days=1)
    if "today" in plain or "tonight" in plain or re.search(r"\bthis (morning|afternoon|evening)\b", plain):
        return now
    words = set(re.findall(r"\w+", plain))
    for number, name in enumerate(WEEKDAYS):
        if name in words:
            return now + timedelta(days=(number - now.weekday() - 1) % 7 + 1)
    date = re.search(rf"\b({_MONTH}) (?:the )?(\d{{1,2}})(?:st|nd|rd|th)?\b", plain)
    swapped = re.search(rf"\b(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? ({_MONTH})\b", plain)
    if date or swapped:
        month, number = (date[1], int(date[2])) if date else (swapped[2], int(swapped[1]))  # type: ignore[index]
        try:
            day = now.replace(month=MONTHS.index(month) + 1, day=number)
            return day if day.date() >= now.date() else day.replace(year=day.year + 1)
        except ValueError:
            raise UnknownTime(f"There is no {month.title()} {number}.") from None
    return None


def _clock(plain: str) -> tuple[int, int, bool] | None:
    """Hour, minute, and whether it is certain which half of the day is meant."""
    words = set(re.findall(r"\w+", plain))
    for name, hour in _NAMED_HOURS.items():
        if name in words:
            return hour, 0, True
    match = re.search(r"\b(half|quarter|\d{1,2}) (past|to) (\d{1,2})\b", plain)
    if match:
        minutes = {"half": 30, "quarter": 15}.get(match[1]) or int(match[1])
        hour = int(match[3]) - (match[2] == "to")
        minute = minutes if match[2] == "past" else 60 - minutes
        return _with_half(hour % 24, minute, plain)
    match = re.search(r"\b(\d{1,2})[:.](\d{2})\b", plain) or re.search(r"\bat (\d{1,2}) (\d{2})\b", plain)
    if match:
        return _with_half(int(match[1]), int(match[2]), plain)
    match = re.search(r"\b(\d{1,2})\s*(?=a\.?m|p\.?m)", plain) or re.search(r"\bat (\d{1,2})\b", plain)
    match = match or re.fullmatch(r"(?:tomorrow|today|tonight)?\s*(\d{1,2})", plain)
    if match:
        return _with_half(int(match[1]), 0, plain)
    for part, hour in _DAY_PARTS.items():
        if part in plain:
            return hour, 0, True
    return None


def _with_half(hour: int, minute: int, plain: str) -> tuple[int, int, bool]:
    if hour > 23 or minute > 59:
        raise UnknownTime(f"There is no time {hour}:{minute:02}.")
    if re.search(r"\bp\.?m\b", plain) or re.search(r"\b(afternoon|evening|tonight|night)\b", plain):
        return (hour + 12 if hour < 12 else hour), minute, True
    if re.search(r"\ba\.?m\b", plain) or "morning" in plain:
        return hour % 12, minute, True
    return hour, minute, hour > 12 or hour == 0
