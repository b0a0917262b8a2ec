"""The built-in tool for sums with times and days: "90 minutes after 10:30", "from a quarter past two to three o'clock",
"two days after Friday", "in three weeks". It reads the user's words, in English, and takes no arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from server.tools.function_tool import NO_RESULT, Caller, ServerTool, Spoken, function_tool, tool
from server.tools.when import (
    WEEKDAYS,
    UnknownTime,
    clock_times,
    named_day,
    parse_duration,
    plain_words,
    spoken_duration,
)
from server.tools.world_clock import spoken_date

_WEEKDAY = rf"(?:{'|'.join(WEEKDAYS)})"
_RELATIVE = {"day after tomorrow": 2, "day before yesterday": -2, "tomorrow": 1, "yesterday": -1, "today": 0}
_ANY_RELATIVE = rf"(?:the )?({'|'.join(_RELATIVE)})"
_DURATION = r"(?:\w+|half an?|\w+ and a half|a quarter of an) (?:hours?|minutes?|days?|weeks?)\b"
_BACKWARDS = r"\b(before|earlier|ago|must i|should i|do i (?:have|need) to|at the latest)\b"
"""Words of those who ask for a time that lies before the one that they name."""

_ABOUT_SUMS = (
    rf"\b({_WEEKDAY}|today|tomorrow|yesterday|noon|midnight|o'clock|[ap]\.?m\b|past|\d:\d\d|now|at|it's|it is)\b.*"
    rf"({_DURATION}|\b{_ANY_RELATIVE})|{_DURATION}.*\b({_WEEKDAY}|after|before|from now|ago)\b|"
    rf"\b(day|date)\b.*\bin {_DURATION}|"
    r"\b(how long|how many (hours|minutes|days|weeks))\b.*\b(between|from|until|till)\b"
)
"""What people say who want such a sum: a time and a duration, two days, or what lies between two times."""

_SUM_OF_TIMES = rf"^(?!.*\b(remind|reminder|timer|alarm|note|write)\b)(?=.*\b(when|what|which|how)\b).*({_ABOUT_SUMS})"


def work_out(said: str, now: datetime) -> str:
    """The answer in a sentence. Raises UnknownTime if the words are not understood."""
    plain = plain_words(said)
    sign = -1 if re.search(_BACKWARDS, plain) else 1
    times = clock_times(plain)
    if len(times) == 2 and re.search(r"\b(how long|how many|how much time)\b", plain):
        return _between(*times)
    if len(times) == 1 and (duration := _duration(plain)) is not None:
        return _clock_after(*times[0], sign * duration)
    if times:
        raise UnknownTime(said)
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


def _between(start: tuple[int, int, bool], end: tuple[int, int, bool]) -> str:
    minutes = 60 * (end[0] - start[0]) + end[1] - start[1]
    minutes %= 24 * 60 if start[2] and end[2] else 12 * 60
    if not minutes:
        raise UnknownTime("The two times are the same.")
    return f"It is {spoken_duration(timedelta(minutes=minutes))}."


def _weekday(plain: str, sign: int) -> str:
    """The weekday that is asked for, if the words name another one."""
    known = re.search(rf"{_ANY_RELATIVE} (?:is|was|were) (?:an? )?({_WEEKDAY})", plain)
    named = known[2] if known else next(iter(re.findall(rf"\b({_WEEKDAY})\b", plain)), "")
    if not named or not re.search(r"\b(which|what) (?:week)?day\b|\bday (?:of the week|will|was|is|comes)\b", plain):
        return ""
    offset = -_RELATIVE[known[1]] if known else 0
    others = re.findall(_ANY_RELATIVE, plain[: known.start()] + plain[known.end() :]) if known else []
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


def time_sum_tools(now: Callable[[], datetime]) -> list[ServerTool]:
    """The tool, on a clock that returns the time here."""

    @tool(read_only=True, said=_SUM_OF_TIMES)
    def work_out_time(caller: Caller) -> Spoken | str:
        """Work out a time, weekday or date from another one, or how long it is between two times."""
        try:
            return Spoken(work_out(caller.said, now()))
        except UnknownTime:
            return NO_RESULT

    return [function_tool(work_out_time)]
