"""What an assistant said, as values."""

from __future__ import annotations

import pytest

from lab.benchmarks.planner.__main__ import load
from lab.benchmarks.planner.grading import CANNOT, is_accepted, says, says_wrong, values


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("That's twenty-five dollars.", ["25"]),
        ("It's 3:05 PM.", ["15:05"]),
        ("It's 4:00.", ["04:00", "16:00"]),
        ("At noon.", ["12:00"]),
        ("It's Friday, December 11.", ["12-11", "december", "11", "friday", "11"]),
        ("That's 1,234.5.", ["1234.5"]),
        ("Nothing of the kind.", []),
    ],
)
def test_values_are_read(text: str, found: list[str]) -> None:
    assert values(text) == found


@pytest.mark.parametrize(
    ("text", "accepted", "right", "wrong"),
    [
        ("That's 12.5 euros.", ["12.5"], True, False),
        ("That's 12 euros.", ["12.5"], False, True),
        ("That's 109.36 yards.", ["109.4"], True, False),
        ("It's 4:00.", ["16:00"], True, False),
        ("It's Wednesday, December 2.", ["2026-12-02"], True, False),
        ("That's 1 hour and 40 minutes.", ["100"], True, False),
        ("It's a Friday.", ["friday"], True, False),
        ("I don't know.", ["3"], False, False),
        ("That's 3.", [CANNOT], False, True),
        ("I can't tell: how long is the ride?", [CANNOT], True, False),
        ("I'd need to know how many of the 5 there are. Can you tell me more?", [CANNOT], True, False),
    ],
)
def test_an_answer_is_right_wrong_or_neither(text: str, accepted: list[str], right: bool, wrong: bool) -> None:
    assert says(text, accepted) == right
    assert says_wrong(text, accepted) == wrong


@pytest.mark.parametrize("part", ["development", "reported"])
def test_the_patterns_of_the_questions_accept_their_reference_and_no_wrong_answer(part: str) -> None:
    items = load(part, "answers")
    assert len(items) == 75
    for item in items:
        assert is_accepted(item["reference"], item), item["ask"]
        assert not is_accepted(item["wrong"], item), item["ask"]
