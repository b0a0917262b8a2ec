"""Times of day as people say them."""

from __future__ import annotations

from datetime import time

import pytest

from agent.capture.field import Progress
from agent.capture.times import Time
from agent.words.language import TimeParts

TIME = Time(earliest=time(8), latest=time(18))


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("half past two", time(14, 30)),
        ("quarter to nine", time(8, 45)),
        ("a quarter past ten", time(10, 15)),
        ("ten to five", time(16, 50)),
        ("2:30 p.m.", time(14, 30)),
        ("2.30", time(14, 30)),
        ("two thirty", time(14, 30)),
        ("nine o'clock", time(9)),
        ("at 9", time(9)),
        ("14:15", time(14, 15)),
        ("eleven oh five", time(11, 5)),
        ("noon", time(12)),
        ("three in the afternoon", time(15)),
    ],
)
def test_times(text: str, at: time) -> None:
    entry = TIME.hear(text, TIME.empty)
    assert entry is not None
    assert TIME.progress(entry) is Progress.COMPLETE
    assert TIME.value(entry) == at


def test_the_half_of_the_day_is_asked_for_where_the_hours_leave_it_open() -> None:
    any_time = Time()
    entry = any_time.hear("half past eight", any_time.empty)
    assert entry is not None
    assert any_time.progress(entry) is Progress.PARTIAL
    assert any_time.ask_rest(entry) == "In the morning or in the afternoon?"
    entry = any_time.hear("in the evening", entry)
    assert entry is not None
    assert any_time.value(entry) == time(20, 30)


def test_a_time_outside_the_hours_is_refused() -> None:
    assert TIME.problem(TimeParts(20, 0)) == (
        "It has to be between 8 o'clock in the morning and 6 o'clock in the evening."
    )


def test_keys_are_hours_and_minutes() -> None:
    assert TIME.press("1430", TIME.empty) == TimeParts(14, 30, afternoon=True)
    assert TIME.press("9", TIME.empty) == TimeParts(9, 0)
    assert TIME.press("2575", TIME.empty) is None
