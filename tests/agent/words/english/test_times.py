"""What the user said, with numbers and times of day in digits."""

from __future__ import annotations

import pytest

from agent.matched_text import MAX_SAID
from agent.words.english import in_digits


@pytest.mark.parametrize(
    ("said", "digits"),
    [
        ("Meet me at quarter past six", "Meet me at 6:15"), ("half past seven", "7:30"),
        ("quarter past six and half past seven", "6:15 and 7:30"),
        ("two and a half to three cups", "2.5 to 3 cups"), ("half past six and a quarter", "6:30 and a quarter"),
        ("an hour and a half after three", "1.5 hours after 3"),
        ("a quarter till seven", "6:45"), ("two and three quarter hours", "2.75 hours"),
        ("a quarter to twelve", "11:45"), ("a quarter to one", "12:45"), ("it’s five o’clock", "it's 5:00"),
        ("six p.m.", "6 pm"), ("10:30 PM sharp", "10:30 pm sharp"), ("an hour and a half", "1.5 hours"),
        ("two hours and a quarter", "2.25 hours"), ("an hour and three quarters", "1.75 hours"),
        ("two and a half hours", "2.5 hours"), ("half an hour", "30 minutes"),
        ("three quarters of an hour", "45 minutes"), ("a hundred and twenty", "120"), ("one two three", "1 2 3"),
        ("quarter to five minutes", "quarter to 5 minutes"), ("half past 5 percent", "half past 5 percent"),
        ("123456 and a half", "123456.5"), ("a million and a half", "1000000 and a half"),
        ("a hundred and a half", "100 and a half"), ("1234567 hours and a quarter", "1234567.25 hours"),
        ("eighty four dollars and fifty cents", "84.50 dollars"), ("84$ and 5 cents", "84.05 dollars"),
        ("$3 and 20 cents each", "3.20 dollars each"), ("two pounds and ten pence", "2.10 pounds"),
        ("two and fifty cents", "2 and 50 cents"), ("five dollars and forty", "5 dollars and 40"),
        ("I am here", "I am here"), ("the first of june", "the first of june"), ("noon", "noon"),
    ],
)  # fmt: skip
def test_numbers_and_times_are_in_digits(said: str, digits: str) -> None:
    assert in_digits(said) == digits


def test_a_long_text_is_cut() -> None:
    assert len(in_digits("a " * 10_000)) <= MAX_SAID
