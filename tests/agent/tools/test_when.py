"""Durations and times in words."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from agent.tools.when import UnknownTime, parse_duration, parse_time, spoken_duration

NOW = datetime(2026, 11, 22, 15, 30, tzinfo=timezone(timedelta(hours=1)))  # a Sunday


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1 minute", 60), ("one minute", 60), ("a minute", 60), ("90 seconds", 90), ("an hour and a half", 5400),
        ("half an hour", 1800), ("2 hours and 15 minutes", 8100), ("two and a half minutes", 150),
        ("twenty-five minutes", 1500), ("forty five seconds", 45), ("1h 30m", 5400), ("a quarter of an hour", 900),
        ("10-minute", 600), ("three days", 259_200), ("a minute and a half", 90), ("1.5 hours", 5400),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "soon", "zero minutes", "10", "minutes", "900 weeks"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UnknownTime):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in 20 minutes", "22 15:50"), ("20 minutes from now", "22 15:50"), ("2 hours", "22 17:30"),
        ("at 5 pm", "22 17:00"), ("at five", "22 17:00"), ("at 3", "23 15:00"), ("at 17:45", "22 17:45"),
        ("half past six", "22 18:30"), ("a quarter to seven", "22 18:45"), ("10 past 4", "22 16:10"),
        ("tomorrow at 9", "23 09:00"), ("tomorrow morning", "23 09:00"), ("tomorrow at nine am", "23 09:00"),
        ("tomorrow", "23 09:00"), ("tonight", "22 20:00"), ("tonight at 8", "22 20:00"), ("noon", "23 12:00"),
        ("at midnight", "23 00:00"), ("on Friday at 10", "27 10:00"), ("next Sunday", "29 09:00"),
        ("November 30th at 2 p.m.", "30 14:00"), ("the 25th of November", "25 09:00"), ("this evening", "22 19:00"),
        ("6:15 p.m.", "22 18:15"), ("8 o'clock tonight", "22 20:00"), ("at 7 in the morning", "23 07:00"),
    ],
)  # fmt: skip
def test_times(text: str, expected: str) -> None:
    assert parse_time(text, NOW).strftime("%d %H:%M") == expected


@pytest.mark.parametrize("text", ["", "whenever", "today at 9 am", "at 25:00", "February 30", "in two years"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UnknownTime):
        parse_time(text, NOW)


def test_durations_are_said_with_their_two_largest_units() -> None:
    assert spoken_duration(timedelta(seconds=60)) == "1 minute"
    assert spoken_duration(timedelta(hours=2, minutes=1, seconds=5)) == "2 hours and 1 minute"
