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
        ("twenty-five to four", time(15, 35)),
        ("ten minutes before noon", time(11, 50)),
        ("ten minutes to five", time(16, 50)),
        ("twenty five minutes past two", time(14, 25)),
        ("quarter past noon", time(12, 15)),
        ("I am free at five", time(17)),
        ("when am I due, at five", time(17)),
        ("zero eight thirty", time(8, 30)),
        ("zero nine hundred", time(9)),
        ("fifteen hundred hours", time(15)),
    ],
)
def test_times(text: str, at: time) -> None:
    entry = TIME.hear(text, TIME.empty)
    assert entry is not None
    assert TIME.progress(entry) is Progress.COMPLETE
    assert TIME.value(entry) == at


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("twelve at night", time(0)),
        ("half past twelve at night", time(0, 30)),
        ("two at night", time(2)),
        ("twelve thirty tonight", time(0, 30)),
        ("ten at night", time(22)),
        ("1 pm, not at night", time(13)),
        ("midnight", time(0)),
        ("half past midnight", time(0, 30)),
        ("quarter to midnight", time(23, 45)),
        ("7:30pm", time(19, 30)),
        ("7pm", time(19)),
        ("at 7.30 am", time(7, 30)),
        ("7am", time(7)),
        ("at 7 am I think", time(7)),
        ("six in the morning", time(6)),
        ("zero thirty", time(0, 30)),
    ],
)
def test_times_of_the_whole_day(text: str, at: time) -> None:
    entry = Time().hear(text, TimeParts())
    assert entry is not None
    assert Time().progress(entry) is Progress.COMPLETE
    assert Time().value(entry) == at


def test_the_half_of_the_day_is_asked_for_where_the_hours_leave_it_open() -> None:
    any_time = Time()
    entry = any_time.hear("half past eight", any_time.empty)
    assert entry is not None
    assert any_time.progress(entry) is Progress.PARTIAL
    assert any_time.ask_rest(entry) == "In the morning or in the afternoon?"
    entry = any_time.hear("in the evening", entry)
    assert entry is not None
    assert any_time.value(entry) == time(20, 30)


def test_a_corrected_hour_keeps_the_half_of_the_day_unless_the_hours_exclude_it() -> None:
    hours = Time(earliest=time(9), latest=time(17))
    entry = hours.hear("3 pm", hours.empty)
    assert entry is not None
    for said, at in (("no, eleven", time(11)), ("no, four", time(16)), ("no, 10 am", time(10))):
        corrected = hours.correct(said, entry)
        assert corrected is not None and hours.value(corrected) == at


def test_a_time_outside_the_hours_is_refused() -> None:
    assert TIME.problem(TimeParts(20, 0)) == (
        "It has to be between 8 o'clock in the morning and 6 o'clock in the evening."
    )


def test_keys_are_hours_and_minutes() -> None:
    assert TIME.press("1430", TIME.empty) == TimeParts(14, 30, afternoon=True)
    assert TIME.press("9", TIME.empty) == TimeParts(9, 0)
    assert TIME.press("2575", TIME.empty) is None
