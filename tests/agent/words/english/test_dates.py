"""The days that people name, on a Sunday and on a Wednesday."""

from __future__ import annotations

from datetime import date, datetime

import pytest

from agent.words.english import is_named_date, named_date, supposes_another_day
from agent.words.language import YearlessDay

SUNDAY, WEDNESDAY = datetime(2026, 11, 22, 15, 0), datetime(2026, 11, 25, 15, 0)


@pytest.mark.parametrize(
    ("text", "on_sunday", "on_wednesday"),
    [
        ("today", "2026-11-22", "2026-11-25"), ("tonight", "2026-11-22", "2026-11-25"),
        ("tomorrow", "2026-11-23", "2026-11-26"), ("the day after tomorrow", "2026-11-24", "2026-11-27"),
        ("yesterday", "2026-11-21", "2026-11-24"), ("friday", "2026-11-27", "2026-11-27"),
        ("on Friday", "2026-11-27", "2026-11-27"), ("sunday", "2026-11-29", "2026-11-29"),
        ("next friday", "2026-11-27", "2026-12-04"), ("last friday", "2026-11-20", "2026-11-20"),
        ("last sunday", "2026-11-15", "2026-11-22"), ("June 1st", "2027-06-01", "2027-06-01"),
        ("the first of june", "2027-06-01", "2027-06-01"), ("june twenty-first", "2027-06-21", "2027-06-21"),
        ("1 june 2028", "2028-06-01", "2028-06-01"), ("feb 29", "2028-02-29", "2028-02-29"),
        ("2026-12-24", "2026-12-24", "2026-12-24"), ("12-24", "2026-12-24", "2026-12-24"),
        ("christmas", "2026-12-25", "2026-12-25"), ("Christmas Eve", "2026-12-24", "2026-12-24"),
        ("christmas 2027", "2027-12-25", "2027-12-25"), ("new year’s eve", "2026-12-31", "2026-12-31"),
        ("november 22", "2026-11-22", "2027-11-22"), ("in three days", "2026-11-25", "2026-11-28"),
        ("two weeks from now", "2026-12-06", "2026-12-09"), ("3 days ago", "2026-11-19", "2026-11-22"),
        ("in a month", "2026-12-22", "2026-12-25"), ("the 23rd", "2026-11-23", "2026-12-23"),
        ("on the fifteenth", "2026-12-15", "2026-12-15"), ("31st", "2026-12-31", "2026-12-31"),
    ],
)  # fmt: skip
def test_a_named_day_is_the_next_one(text: str, on_sunday: str, on_wednesday: str) -> None:
    assert is_named_date(text)
    assert named_date(text, SUNDAY).isoformat() == on_sunday
    assert named_date(text, WEDNESDAY).isoformat() == on_wednesday


@pytest.mark.parametrize(
    ("text", "on_sunday", "on_wednesday"),
    [
        ("next week", "2026-11-29", "2026-12-02"),
        ("next month", "2026-12-22", "2026-12-25"),
        ("this weekend", "2026-11-22", "2026-11-28"),
        ("next weekend", "2026-11-28", "2026-12-05"),
        ("the end of the month", "2026-11-30", "2026-11-30"),
    ],
)
def test_a_time_ahead_may_be_a_day_but_names_none(text: str, on_sunday: str, on_wednesday: str) -> None:
    assert not is_named_date(text), "until then it is less"
    assert named_date(text, SUNDAY).isoformat() == on_sunday
    assert named_date(text, WEDNESDAY).isoformat() == on_wednesday


def test_a_day_without_a_year_may_be_the_nearest_one() -> None:
    assert named_date("november 21", SUNDAY) == date(2027, 11, 21)
    nearest = named_date("november 21", SUNDAY, nearest=True)
    assert nearest == date(2026, 11, 21)
    assert isinstance(nearest, YearlessDay)
    assert not isinstance(named_date("november 21 2026", SUNDAY, nearest=True), YearlessDay)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "the 32nd",
        "5",
        "ten",
        "0",
        "february 30",
        "32 june",
        "13-1",
        "0-0",
        "easter",
        "june",
        "99999999999999 days",
        "in 99999 years",
    ],
)
def test_what_names_no_day_is_refused(text: str) -> None:
    assert not is_named_date(text)
    with pytest.raises(ValueError):
        named_date(text, SUNDAY)


@pytest.mark.parametrize(
    ("text", "supposed"),
    [
        ("If today is Tuesday, what day is it in ten days?", True),
        ("Let's say it's Friday the 3rd, what's the date in two weeks?", True),
        ("Suppose that tomorrow was Sunday. What day is today?", True),
        ("Imagine today's the first of March, how long until Easter?", True),
        ("What day is it in ten days?", False),
        ("Tell me if the shop is open on Tuesday.", False),
        ("It's Tuesday, isn't it?", False),
    ],
)
def test_a_day_may_only_be_supposed(text: str, supposed: bool) -> None:
    assert supposes_another_day(text) is supposed
