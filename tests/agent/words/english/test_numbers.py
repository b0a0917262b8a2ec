"""Numbers as people say them and as a recognizer writes them."""

from __future__ import annotations

import time

import pytest

from agent.matched_text import MAX_SAID
from agent.words.english import cardinal, digits_for_words, ordinal, spoken_digits, tokens, with_numerals


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("Five five five, one two three, four five six seven.", "5551234567"),
        ("555-123-4567.", "5551234567"),
        ("It's double five, oh, one.", "5501"),
        ("triple seven o2o", "777020"),
        ("eight hundred five five five", "800555"),
        ("1-800 twenty five", "180025"),
        ("my number is four one five and then twenty, thirty one", "4152031"),
        ("two thousand", "2000"),
        ("plus four nine thirty", "+4930"),
        ("five to four", "524"),
        ("seven for", "74"),
        ("call me for lunch", ""),
        ("to", "2"),
        ("oh", "0"),
        ("Oh, it's five five five.", "555"),
        ("Oh it's five five five.", "555"),
        ("Oh, five five five.", "555"),
        ("555-1234, oh wait", "5551234"),
        ("oh five five", "055"),
        ("five, oh, oh, one", "5001"),
        ("five five oh, please", "550"),
        ("triple oh please", "000"),
        ("to five five", "55"),
        ("for 555 12", "55512"),
        ("nothing at all", ""),
        ("double", ""),
    ],
)
def test_the_digits_of_a_text(text: str, digits: str) -> None:
    assert spoken_digits(text) == digits


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("twenty five", 25),
        ("a hundred and twenty", 120),
        ("twelve hundred", 1200),
        ("two thousand five hundred", 2500),
        ("1,200", 1200),
        ("three million", 3_000_000),
        ("five six", 5),
        ("hello", None),
        ("and", None),
    ],
)
def test_quantities(text: str, number: int | None) -> None:
    found = cardinal(tokens(text))
    assert (found and found[0]) == number


@pytest.mark.parametrize(
    ("text", "number"), [("fifteenth", 15), ("twenty first", 21), ("3rd", 3), ("thirtieth", 30), ("twenty", None)]
)
def test_ordinals(text: str, number: int | None) -> None:
    found = ordinal(tokens(text))
    assert (found and found[0]) == number


def test_tens_become_digits_and_single_digits_stay() -> None:
    assert with_numerals("anna forty two, nineteen, five six") == "anna 42, 19, five six"


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("Two hundred and fifty, please.", "250, please."), ("a thousand and one nights", "1001 nights"),
        ("three forty-five", "3 45"), ("hundred", "100"), ("two million five hundred thousand", "2500000"),
        ("for the first one of you", "for the first one of you"), ("no number", "no number"),
        ("no one knows", "no one knows"), ("no, one", "no, 1"), ("no two", "no 2"), ("casino one", "casino 1"),
        ("the twenty-first, a thirty-second timer", "the twenty-first, a 30-second timer"),
        ("2.5 million", "2500000"), ("$1.25 thousand, or two", "$1250, or 2"), ("version 2.5", "version 2.5"),
        ("twenty-one point oh five million", "21050000"), ("0.5 hundred", "50"),
        ("Good point one thousand people came", "Good point 1000 people came"), ("Well, 5.5 million", "Well, 5500000"),
        ("the boiling point one hundred degrees", "the boiling point 100 degrees"),
    ],
)  # fmt: skip
def test_quantities_become_digits(text: str, digits: str) -> None:
    assert digits_for_words(text) == digits


@pytest.mark.timeout(5)
@pytest.mark.parametrize(
    "again",
    [
        "one thousand and ",
        "one point one ",
        "1.1 ",
        "1,111",
        "point one one one ",
        "a million and ",
        "one hundred ",
        "twenty-",
        "and ",
    ],
)
def test_whatever_is_said_is_read_quickly(again: str) -> None:
    start = time.process_time()
    digits_for_words((again * MAX_SAID)[:MAX_SAID])
    assert time.process_time() - start < 0.5
