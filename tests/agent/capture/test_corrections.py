"""Corrections of a sequence of digits or letters."""

from __future__ import annotations

import pytest

from agent.capture.corrections import corrected, is_correction, without_denial, wrong_part
from agent.capture.letters import spelled_letters
from agent.words.english import spoken_digits

NUMBER = "5551234568"


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("No, the last digit is seven.", "5551234567"),
        ("the last one should be a 7", "5551234567"),
        ("No. The last digit is wrong, it's seven.", "5551234567"),
        ("change the third one to eight", "5581234568"),
        ("Change the 3rd digit to 8, please.", "5581234568"),
        ("the second to last is 9", "5551234598"),
        ("it's nine, not eight", "5551234569"),
        ("not eight but nine", "5551234569"),
        ("not 8, 9", "5551234569"),
        ("change the eight to a nine", "5551234569"),
        ("nine instead of eight", "5551234569"),
        ("the last two are 7 7", "5551234577"),
        ("the first three digits are four one five", "4151234568"),
        ("the last digits are 9 9", "5551234599"),
        ("it ends with four four", "5551234544"),
        ("the fourth is two and the last is seven", "5552234567"),
        ("the third digit is seven, not five", "5571234568"),
        ("delete the last digit", "555123456"),
        ("add a nine at the end", "55512345689"),
        ("the last digit is to", "5551234562"),
        ("it's six, not five", None),
        ("the twelfth digit is six", None),
        ("the last three are 7 7", None),
        ("five five five", None),
        ("no", None),
    ],
)
def test_corrections_of_a_number(text: str, after: str | None) -> None:
    assert corrected(NUMBER, text, spoken_digits) == after


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("No, the third letter is N as in November.", "smnth"),
        ("it's Y, not I", "smyth"),
        ("with a y instead of i", "smyth"),
        ("the last letter is T as in Tango", "smitt"),
        ("replace M with N", "snith"),
    ],
)
def test_corrections_of_a_name(text: str, after: str) -> None:
    assert corrected("smith", text, lambda named: spelled_letters(named, alone=True)) == after


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("No, the last two digits.", "the last two digits"),
        ("the third one", "the third one"),
        ("change the last digit", "the last digit"),
        ("the second to last digit", "the second to last digit"),
        ("the third digit is wrong", "the third digit"),
        ("The area code's wrong.", "the area code"),
        ("The month is not right.", "the month"),
        ("that's wrong", ""),
        ("the last digit is seven", ""),
        ("one one five", ""),
        ("the fifteenth", ""),
        ("four one five", ""),
    ],
)
def test_a_part_that_is_called_wrong(text: str, part: str) -> None:
    assert wrong_part(text) == part


def test_what_follows_no_is_left() -> None:
    assert without_denial("No, no, that's wrong. It's March.") == "it's march"
    assert without_denial("Nope.") == ""
    assert is_correction("Sorry, the last is five")
    assert is_correction("change the first to 3")
    assert not is_correction("five five five")
