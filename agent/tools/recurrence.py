"""When an alarm is due: the next such time, and the times after it if it repeats."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date, datetime, time, timedelta

from agent.program.evaluator import read_clock
from agent.program.values import Clock
from agent.words.language import language

_ENGLISH = language("en")

_DAYS = "|".join(_ENGLISH.WEEKDAYS)
REPEAT_PATTERN = rf"daily|weekdays|weekends|weekly|monthly|yearly|({_DAYS})(, ({_DAYS}))*"
"""What may be said of how often."""

_PART_OF_DAY = re.compile(r"(?P<day>.*?) ?\b(?:this )?(?P<part>morning|afternoon|evening|night|tonight)")

_MAX_AHEAD = timedelta(days=366)
_DEFAULT = Clock(9 * 60)
"""When a reminder is due that has a day only."""

_EARLIEST = 5 * 60
"""The first minute of the day at which people get up."""

_HOURS = {"morning": 9, "afternoon": 15, "evening": 19, "night": 21, "tonight": 21}
"""The hour at which something is due if only a part of the day is given."""


def first_due(clock_text: str, day_text: str, repeat: str, now: datetime, *, morning: bool) -> datetime:
    """The first time that an alarm is due: the next such time after `now`.

    Args:
        clock_text: a time of day; empty for nine o'clock, or the hour that suits the part of the day in `day_text`.
        day_text: a day; empty for the next one that it can be.
        morning: whether a time without a half of the day is one of the morning, if people get up at it.

    Raises:
        ValueError: it is not understood, has passed, or is more than a year ahead.
    """
    clock = read_clock(clock_text) if clock_text else _DEFAULT
    past_midnight = False
    if match := _PART_OF_DAY.fullmatch(day_text.strip().lower()):
        day_text = match["day"] or "today"
        if not clock_text:
            clock = Clock(60 * _HOURS[match["part"]])
        elif "night" in match["part"] and (minutes := clock.minutes % (1440 if clock.certain else 720)) < _EARLIEST:
            clock, past_midnight = Clock(minutes), True
        elif match["part"] == "morning":
            clock = Clock(clock.minutes % 720)
        elif not clock.certain and clock.minutes < 720:
            clock = Clock(clock.minutes + 720)
    day_text = f"the {day_text}" if day_text.isdigit() else day_text
    day = _ENGLISH.named_date(day_text, now) if day_text else None
    moment = datetime.combine(day or now.date(), time(clock.minutes // 60, clock.minutes % 60), now.tzinfo)
    gets_up = morning and clock.minutes >= _EARLIEST
    if clock.certain:
        pass
    elif day == now.date():
        later = moment + timedelta(hours=12)
        moment = later if moment <= now < later and later.date() == day else moment
    elif not gets_up and not _is_morning(clock, now, today=day is None and falls_on(now.date(), repeat)):
        moment += timedelta(hours=12)
    if past_midnight and (day != now.date() or moment <= now):
        moment += timedelta(days=1)  # "tomorrow night at one"
    if day is None:
        while moment <= now or not falls_on(moment.date(), repeat):
            moment += timedelta(days=1)
    if moment <= now:
        raise ValueError("That time has already passed." if clock_text else "At what time?")
    if moment - now > _MAX_AHEAD:
        raise ValueError("More than a year ahead is too far.")
    return moment


def _is_morning(clock: Clock, now: datetime, *, today: bool) -> bool:
    """Whether a time that may be either half of the day is meant in the morning: the next such time is, or, where it
    cannot be today, it is not one of the first hours, at which nobody is reminded."""
    if not today:
        return clock.minutes >= 7 * 60
    minutes = 60 * now.hour + now.minute
    return minutes < clock.minutes or minutes >= clock.minutes + 720


def falls_on(day: date, repeat: str) -> bool:
    """Whether an alarm that repeats in this way may be due on a day."""
    if repeat == "weekdays":
        return day.weekday() < 5
    if repeat == "weekends":
        return day.weekday() >= 5
    named = re.findall(_DAYS, repeat)
    return not named or _ENGLISH.WEEKDAYS[day.weekday()] in named


def stored_repeat(repeat: str, first: datetime) -> str:
    """How often, with the day of the month, which a shorter month must not change, and the time of day, which a day
    without that time must not change either: the one on which clocks are put forward."""
    day = f" {first.day}" if repeat in ("monthly", "yearly") else ""
    return f"{repeat}{day} {first:%H:%M}" if repeat else ""


def next_due(due: datetime, repeat: str, now: datetime) -> datetime | None:
    """The first time after `now` at which an alarm is due again; None if it does not repeat.

    Args:
        repeat: as `stored_repeat` returns it, or has returned it earlier, without the time of day.
    """
    written = re.fullmatch(r"(.+?)(?: (\d+))?(?: (\d\d):(\d\d))?", repeat)
    if written is None:
        return None
    kind, day, hour, minute = written.groups()
    start = due.replace(hour=int(hour), minute=int(minute)) if hour else due
    for count in range(1, 5000):
        if kind in ("monthly", "yearly"):
            months = start.year * 12 + start.month - 1 + count * (12 if kind == "yearly" else 1)
            year, month = months // 12, months % 12 + 1
            due = start.replace(year=year, month=month, day=min(int(day or start.day), monthrange(year, month)[1]))
        else:
            due = start + timedelta(days=count * (7 if kind == "weekly" else 1))
        if due > now and falls_on(due.date(), kind):
            return due
    return None


def spoken_repeat(repeat: str) -> str:
    """How often, as it is said: "every day", "on weekdays", "every Monday and Friday"."""
    if named := [day.title() for day in re.findall(_DAYS, repeat)]:
        return f"every {', '.join(named[:-1])}{' and ' if named[:-1] else ''}{named[-1]}"
    return {"daily": "every day", "weekdays": "on weekdays", "weekends": "on weekends", "weekly": "every week",
            "monthly": "every month", "yearly": "every year"}.get(repeat.partition(" ")[0], "")  # fmt: skip
