"""Sums with times and days: "90 minutes after 10:30", "from a quarter past two to three o'clock", "two days after
Friday", "in three weeks". In English."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from agent.tools.date_sums import date_answer
from agent.tools.when import (
    WEEKDAYS,
    UnknownTime,
    clock_times,
    duration_spans,
    named_day,
    parse_duration,
    plain_words,
    spoken_duration,
)
from agent.tools.world_clock import spoken_date, spoken_time

WEEKDAY = rf"(?:{'|'.join(WEEKDAYS)})"
_RELATIVE = {"day after tomorrow": 2, "day before yesterday": -2, "tomorrow": 1, "yesterday": -1, "today": 0}
ANY_RELATIVE = rf"(?:the )?({'|'.join(_RELATIVE)})"
DURATION = r"\b(?:half an?|a quarter of an|\w++(?: and a half)?) (?:hours?|minutes?|days?|weeks?)\b"
_BACKWARDS = (
    r"\b(before|earlier|ago|at the latest|(?:(?:must|should|shall) (?:i|we)|do (?:i|we) (?:have|need) to) "
    r"(?:leave|start|begin|go|set off|head out|depart|get up|wake up|get going))\b"
)
"""Words of those who ask for a time that lies before the one that they name."""

FROM_NOW = re.compile(r"(?:and |so )*what time (?:will it be|would it be|is it|was it)(?: in)?(?: from now| ago)?")
"""A question for a time that is counted from now, without its duration."""


def without_spans(plain: str, spans: Sequence[tuple[int, int]]) -> str:
    """Text without these parts of it."""
    for start, end in sorted(spans, reverse=True):
        plain = f"{plain[:start]} {plain[end:]}"
    return plain


def work_out(said: str, now: datetime) -> str:
    """The answer in a sentence. Raises UnknownTime if the words are not understood."""
    plain = plain_words(said)
    if answer := date_answer(plain, now):
        return answer
    sign = -1 if re.search(_BACKWARDS, plain) else 1
    times = clock_times(plain)
    if len(times) == 2 and re.search(r"\b(how long|how many|how much time)\b", plain):
        return _between(*times, in_minutes="how many minutes" in plain)
    if len(times) == 1 and (duration := _duration(plain)) is not None:
        return _clock_after(*times[0], sign * duration)
    if len(times) == 1 and re.search(r"\bhow (?:long|many|much)\b.*\b(?:until|till|to|before)\b", plain):
        return _until(*times[0], now)
    if times:
        raise UnknownTime(said)
    if FROM_NOW.fullmatch(" ".join(without_spans(plain, duration_spans(plain)).replace(".", " ").split())):
        return f"It {'is' if sign > 0 else 'was'} {spoken_time(now + sign * parse_duration(plain))}."
    return _weekday(plain, sign) or _date(plain, sign, now)


def _duration(plain: str) -> timedelta | None:
    with suppress(UnknownTime):
        return parse_duration(plain)
    return None


def _clock_after(hour: int, minute: int, certain: bool, duration: timedelta) -> str:
    moment = datetime(2000, 1, 1, hour, minute) + duration
    clock = f"{moment.hour % 12 or 12}:{moment.minute:02}"
    if not certain:
        return f"It is {clock}."
    day = (moment.date() - datetime(2000, 1, 1).date()).days
    when = {0: "", 1: " on the next day", -1: " on the day before"}.get(
        day, f" {abs(day)} days {'later' if day > 0 else 'before'}"
    )
    return f"It is {clock} {'PM' if moment.hour >= 12 else 'AM'}{when}."


def _until(hour: int, minute: int, certain: bool, now: datetime) -> str:
    """How long it is from now to the next such time."""
    minutes = 60 * (hour - now.hour) + minute - now.minute
    return f"It is {spoken_duration(timedelta(minutes=minutes % (24 * 60 if certain else 12 * 60)))}."


def _between(start: tuple[int, int, bool], end: tuple[int, int, bool], *, in_minutes: bool) -> str:
    minutes = 60 * (end[0] - start[0]) + end[1] - start[1]
    minutes %= 24 * 60 if start[2] and end[2] else 12 * 60
    if not minutes:
        raise UnknownTime("The two times are the same.")
    if in_minutes:
        return f"It is {minutes} minutes."
    return f"It is {spoken_duration(timedelta(minutes=minutes))}."


def _weekday(plain: str, sign: int) -> str:
    """The weekday that is asked for, if the words name another one."""
    known = re.search(rf"{ANY_RELATIVE} (?:is|was|were) (?:an? )?({WEEKDAY})", plain)
    named = known[2] if known else next(iter(re.findall(rf"\b({WEEKDAY})\b", plain)), "")
    if not named or not re.search(r"\b(which|what) (?:week)?day\b|\bday (?:of the week|will|was|is|comes)\b", plain):
        return ""
    offset = -_RELATIVE[known[1]] if known else 0
    others = re.findall(ANY_RELATIVE, plain[: known.start()] + plain[known.end() :]) if known else []
    duration = _duration(plain)
    if others:
        offset += _RELATIVE[others[0]]
    elif duration is not None:
        offset += sign * duration.days
    else:
        return ""
    return f"It is {WEEKDAYS[(WEEKDAYS.index(named) + offset) % 7].title()}."


def _date(plain: str, sign: int, now: datetime) -> str:
    """A date counted from today, or how many days it is to one."""
    if re.search(r"\bhow (many days|many weeks|long)\b.*\b(until|till|to)\b", plain):
        day = named_day(plain, now)
        if day is None:
            raise UnknownTime(plain)
        days = (day.date() - now.date()).days
        if "weeks" in plain:
            return f"It is {spoken_duration(timedelta(days=days))}, or {days // 7} weeks and {days % 7} days."
        return f"It is {days} day{'s' if days != 1 else ''} until {spoken_date(day)}."
    duration = _duration(plain)
    if duration is None or duration < timedelta(days=1) or not re.search(r"\b(day|date)\b", plain):
        raise UnknownTime(plain)
    day = now + sign * duration
    return f"It {'is' if sign > 0 else 'was'} {spoken_date(day)}, {day.year}."
