"""Dates as people say them, on Sunday, November 22, 2026."""

from __future__ import annotations

from datetime import date

import pytest

from agent.capture.dates import Date
from agent.capture.field import Progress
from agent.words.language import DateParts

TODAY = date(2026, 11, 22)
DATE = Date(today=lambda: TODAY)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("the fifteenth of March", date(2027, 3, 15)),
        ("March 15th.", date(2027, 3, 15)),
        ("March fifteen", date(2027, 3, 15)),
        ("the twenty first of december", date(2026, 12, 21)),
        ("December 24, 2027", date(2027, 12, 24)),
        ("the third of May twenty twenty eight", date(2028, 5, 3)),
        ("May the fourth", date(2027, 5, 4)),
        ("3/15", date(2027, 3, 15)),
        ("2027-02-01", date(2027, 2, 1)),
        ("tomorrow", date(2026, 11, 23)),
        ("the day after tomorrow, please", date(2026, 11, 24)),
        ("next Tuesday", date(2026, 11, 24)),
        ("on Wednesday", date(2026, 11, 25)),
        ("in two weeks", date(2026, 12, 6)),
        ("a week from Monday", date(2026, 11, 30)),
        ("a week from today", date(2026, 11, 29)),
        ("a fortnight from today", date(2026, 12, 6)),
        ("two weeks from now", date(2026, 12, 6)),
        ("two weeks from tomorrow", date(2026, 12, 7)),
        ("three weeks from next Friday", date(2026, 12, 18)),
        ("three weeks after Friday", date(2026, 12, 18)),
        ("twenty one days from Friday", date(2026, 12, 18)),
        ("for two weeks, starting tomorrow", date(2026, 11, 23)),
        ("Not today, tomorrow.", date(2026, 11, 23)),
        ("No, not on Monday but on Wednesday", date(2026, 11, 25)),
        ("not before Friday, please", date(2026, 11, 27)),
        ("Friday at 7.30", date(2026, 11, 27)),
        ("2-3 people on Friday", date(2026, 11, 27)),
        ("12-24", date(2026, 12, 24)),
        ("on 12.24.", date(2026, 12, 24)),
        ("12.24.2027", date(2027, 12, 24)),
        ("by 12-24-27 please", date(2027, 12, 24)),
        ("3/15/28", date(2028, 3, 15)),
        ("Tuesday the twenty fourth", date(2026, 11, 24)),
        ("the 5th", date(2026, 12, 5)),
        ("Friday the thirteenth", date(2027, 8, 13)),
    ],
)
def test_dates(text: str, day: date) -> None:
    entry = DATE.hear(text, DATE.empty)
    assert entry is not None
    assert DATE.progress(entry) in (Progress.POSSIBLE, Progress.COMPLETE)
    assert DATE.value(entry) == day


@pytest.mark.parametrize("text", ["0/5", "5/0", "13/32", "0/0/2027"])
def test_numbers_that_are_no_date_are_not_heard(text: str) -> None:
    assert DATE.hear(text, DATE.empty) is None


def test_next_tuesday_is_of_next_week_if_this_week_has_one() -> None:
    monday = Date(today=lambda: date(2026, 11, 23))
    entry = monday.hear("next Tuesday", monday.empty)
    assert entry is not None
    assert monday.value(entry) == date(2026, 12, 1)


def test_a_birthday_needs_its_year() -> None:
    birthday = Date(today=lambda: TODAY, when="past")
    entry = birthday.hear("the third of May", birthday.empty)
    assert entry is not None
    assert birthday.progress(entry) is Progress.PARTIAL
    assert birthday.ask_rest(entry) == "Of which year?"
    entry = birthday.hear("nineteen eighty four", entry)
    assert entry is not None
    assert birthday.value(entry) == date(1984, 5, 3)


def test_a_part_is_corrected_and_the_rest_stays() -> None:
    entry = DateParts(2027, 3, 15)
    assert DATE.correct("no, the sixteenth", entry) == DateParts(2027, 3, 16)
    assert DATE.correct("no, April", entry) == DateParts(2027, 4, 15)
    assert DATE.correct("no, on Wednesday", entry) == DateParts(weekday=2)
    assert DATE.correct("that is wrong", entry) is None


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (DateParts(None, 2, 30), "There is no February thirtieth."),
        (DateParts(2025, 3, 15), "Saturday, March fifteenth has passed."),
        (DateParts(2027, 3, 15, 1), "March fifteenth is a Monday."),
        (DateParts(2027, 3, 15), ""),
    ],
)
def test_dates_that_cannot_be(entry: DateParts, problem: str) -> None:
    assert DATE.problem(entry) == problem


def test_keys_are_month_and_day() -> None:
    assert DATE.press("0315", DATE.empty) == DateParts(None, 3, 15)
    assert DATE.press("1503", DATE.empty) is None
    assert Date(day_first=True).press("15032027", DATE.empty) == DateParts(2027, 3, 15)


@pytest.mark.parametrize("text", ["I may be late", "just a moment", "hello"])
def test_what_is_no_date(text: str) -> None:
    assert DATE.hear(text, DATE.empty) is None


def test_a_date_is_read_back_with_its_year_if_that_is_another_one() -> None:
    assert DATE.read_back(DateParts(2026, 11, 24), careful=False) == "Tuesday, November twenty-fourth"
    assert DATE.read_back(DateParts(2026, 11, 24), careful=True) == "Tuesday, November twenty-fourth, 2026"
    assert DATE.read_back(DateParts(None, 3, 15), careful=False) == "Monday, March fifteenth, 2027"
