"""Whether a request was fulfilled, by its calls."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from lab.benchmarks.planner.requests import is_fulfilled

NOW = datetime(2026, 11, 24, 10, 20, tzinfo=ZoneInfo("Europe/Berlin"))


@pytest.mark.parametrize(
    ("tool", "expected", "calls", "fulfilled"),
    [
        ("alarm", {"recurrence": "weekdays"}, [("set_alarm", {"time": "6:40", "repeat": "weekdays"})], True),
        ("alarm", {"time": "06:40"}, [("set_alarm", {"time": "7:40"})], False),
        ("alarm", {"time": "06:40"}, [("set_alarm", {"time": "6:40"}), ("write_note", {"text": "no"})], False),
        ("alarm", {"time": "10:50"}, [("set_reminder", {"about": "Eve", "minutes": 30})], True),
        ("timer", {"seconds": 540, "keywords": ["pasta"]}, [("set_timer", {"minutes": 9, "name": "pasta"})], True),
        ("timer", {"seconds": 540}, [("set_timer", {"minutes": 9, "seconds": 30})], False),
        ("cancel_alarm", {"which": "all"}, [("cancel_alarm", {"name": "all alarms"})], True),
        ("weather", {"place": "Oslo"}, [("get_weather", {"place": "Oslo", "day": "tomorrow"})], True),
        ("weather", {"place": "Oslo", "day": "2026-11-25"}, [("get_weather", {"place": "Oslo"})], False),
        ("note", {"keywords": ["twelve|12"]}, [("write_note", {"text": "form 12"})], True),
    ],
)  # fmt: skip
def test_calls_have_what_is_essential(
    tool: str, expected: dict[str, Any], calls: list[tuple[str, dict[str, Any]]], fulfilled: bool
) -> None:
    assert is_fulfilled({"tool": tool, "expect": expected}, "Done.", calls, NOW) == fulfilled


def test_what_is_missing_is_asked_for_and_what_is_impossible_declined() -> None:
    missing, impossible = {"tool": "timer", "expect": {"ask": True}}, {"tool": "alarm", "expect": {"cannot": True}}
    assert is_fulfilled(missing, "For how long?", [], NOW)
    assert not is_fulfilled(missing, "For how long?", [("set_timer", {"minutes": 5})], NOW)
    assert is_fulfilled(impossible, "Sorry, I can't tell whether it rains.", [], NOW)
    assert not is_fulfilled(impossible, "Your alarm is set.", [("set_alarm", {"time": "6:00"})], NOW)
