"""Whether a request has been fulfilled, by the calls and by what was said."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from agent.tools.recurrence import falls_on, first_due
from agent.words.language import language
from lab.benchmarks.planner.grading import says

_ENGLISH = language("en")

HOME = "Berlin"
"""Where the user lives."""

_NAMES = {
    "alarm": ("set_alarm", "set_reminder"), "timer": ("set_timer", "set_reminder"), "list_alarms": ("list_alarms",),
    "cancel_alarm": ("cancel_alarm",), "note": ("write_note",), "read_notes": ("read_notes",),
    "remember": ("write_note",), "weather": ("get_weather",), "web_search": ("search_web",),
}  # fmt: skip
"""The calls that do what is asked of each tool. The others are computed."""

_COMPUTED = ("calculate", "convert", "clock", "add_duration", "days_between")
CHANGES = ("set_alarm", "set_reminder", "set_timer", "cancel_alarm", "write_note", "delete_notes")
"""The calls that change something."""


def is_fulfilled(
    request: Mapping[str, Any], text: str, calls: Sequence[tuple[str, Mapping[str, Any]]], now: datetime
) -> bool:
    """Whether a request of requests.toml has been: all its tools were called with what is essential, and no other
    change was made. What is missing or impossible must be asked for, or said to be so, and change nothing."""
    expected = request.get("expect", {})
    if expected.get("ask"):
        return "?" in text and not any(name in CHANGES for name, _ in calls)
    if expected.get("cannot"):
        declined = re.search(r"(?i)\b(can't|cannot|can not|sorry|unable|no such|not possible|doesn't exist)\b", text)
        return declined is not None and not any(name in CHANGES for name, _ in calls)
    wanted = [(request["tool"], expected)]
    if "tool2" in request:
        wanted.append((request["tool2"], request.get("expect2", {})))
    changes = sum(tool not in _COMPUTED and _NAMES[tool][0] in CHANGES for tool, _ in wanted)
    if sum(name in CHANGES for name, _ in calls) > changes:
        return False
    return all(_is_done(tool, facts, text, calls, now) for tool, facts in wanted)


def _is_done(
    tool: str, facts: Mapping[str, Any], text: str, calls: Sequence[tuple[str, Mapping[str, Any]]], now: datetime
) -> bool:
    if tool in _COMPUTED:
        if "value" in facts:
            return says(text, [str(facts["value"])])
        if facts.get("what") == "time" and "place" not in facts:
            return says(text, [f"{now:%H:%M}"])
        return bool(calls) and bool(re.search(r"\d", text))
    return any(_has(facts, arguments, now) for name, arguments in calls if name in _NAMES[tool])


def _has(facts: Mapping[str, Any], given: Mapping[str, Any], now: datetime) -> bool:
    """Whether the arguments of a call have what is essential."""
    if facts.get("place") == HOME and "place" not in given:
        given = {**given, "place": HOME}  # where the weather is told of if no place is said
    everything = json.dumps(given).lower()
    for key in ("keywords", "label", "which", "place"):
        words = facts.get(key, [])
        for word in [words] if isinstance(words, str) else words:
            if not any(part.strip().lower() in everything for part in str(word).split("|")):
                return key == "which" and _names_the_same(str(word), everything)
    if "seconds" in facts:
        length = 3600 * given.get("hours", 0) + 60 * given.get("minutes", 0) + given.get("seconds", 0)
        if abs(length - facts["seconds"]) > 1:
            return False
    if "day" in facts and not _is_day(str(facts["day"]), str(given.get("day", "")), now):
        return False
    if "recurrence" in facts and not _recurs(str(facts["recurrence"]), str(given.get("repeat", "")), given, now):
        return False
    return ("time" not in facts and "date" not in facts) or _is_due(facts, given, now)


def _names_the_same(wanted: str, everything: str) -> bool:
    if wanted == "all":
        return "all" in everything or "every" in everything or '""' in everything or everything == "{}"
    clock = re.fullmatch(r"0?(\d{1,2}):(\d\d)", wanted)
    if clock is None:
        return False
    hour = int(clock[1])
    return any(
        re.search(rf"\b{shown}(:{clock[2]}|\b)", everything) is not None for shown in (hour, (hour - 1) % 12 + 1)
    )


def _is_due(facts: Mapping[str, Any], given: Mapping[str, Any], now: datetime) -> bool:
    try:
        if given.get("hours") or given.get("minutes"):
            due = now + timedelta(hours=given.get("hours", 0), minutes=given.get("minutes", 0))
        else:
            clock, day, repeat = (str(given.get(name, "")) for name in ("time", "day", "repeat"))
            due = first_due(clock, day, repeat, now, morning="about" not in given)
    except ValueError:
        return False
    on_time = "time" not in facts or f"{due:%H:%M}" == facts["time"]
    return on_time and ("date" not in facts or due.date().isoformat() == facts["date"])


def _is_day(wanted: str, given: str, now: datetime) -> bool:
    plain = given.lower().replace("weekend", "saturday").removeprefix("this ").strip() or "today"
    for ending in (" morning", " afternoon", " evening", " night"):
        plain = plain.removesuffix(ending)
    try:
        return _ENGLISH.named_date(plain, now).isoformat() == wanted
    except ValueError:
        return False


def _recurs(wanted: str, repeat: str, given: Mapping[str, Any], now: datetime) -> bool:
    """Whether an alarm repeats on the same days of the week."""
    if repeat == "weekly" and given.get("day"):
        repeat = str(given["day"]).lower().removeprefix("every ").removesuffix("s")
    if not repeat:
        return False
    week = [now.date() + timedelta(days=number) for number in range(7)]
    days = {day.weekday() for day in week if falls_on(day, wanted)}
    named = {_ENGLISH.WEEKDAYS.index(day) for day in re.findall("|".join(_ENGLISH.WEEKDAYS), wanted)}
    return {day.weekday() for day in week if falls_on(day, repeat)} == (named or days)
