"""Arithmetic in notes: what is wrong is corrected, and what is not understood is left alone."""

from __future__ import annotations

import pytest

from agent.reasoning.equations import corrected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The stamps are 11 + 20 + 7 = 48 in all", "The stamps are 11 + 20 + 7 = 38"),
        ("(50 + 15 + 30) = 105 dollars", "(50 + 15 + 30) = 95"),
        ("is 2 * (3 + 4) = 15 x", "is 2 * (3 + 4) = 14"),
        ("3 * 5 = 15, then 15 × 2 = 35.\n", "3 * 5 = 15, then 15 × 2 = 30"),
        ("x 5 * 3 = 3 * 5 = 16 a", "x 5 * 3 = 3 * 5 = 15"),
        ("That is 0.25 * (10 + 18) = 0 apples", "That is 0.25 * (10 + 18) = 7"),
        ("Each gets 7 / 3 = 2.5 of them", "Each gets 7 / 3 = 2.33"),
        ("1,200 ÷ 4 = 400 a month", "1,200 ÷ 4 = 300"),
        ("costs 3 dollars. 4 * 5 = 21 x", "costs 3 dollars. 4 * 5 = 20"),
    ],
)
def test_a_wrong_result_is_replaced(text: str, expected: str) -> None:
    assert corrected(text) == expected
    assert corrected(f"{expected} and so on") is None


@pytest.mark.parametrize(
    "text",
    [
        "half of them, 36 / 2 = 18, ok",
        "10 / 3 = 3.33 hours",
        "10 / 3 = 3 boxes",
        "3 / 4 = 0.7 of it",
        "- 20 / 25 = 0.8 hours",
        "12:30 + 2 = 14:30 then",
        "100 * 20% = 20 dollars",
        "60 minutes / 2 = 30 minutes",
        "x2 + 3 = 9 ",
        "4 + 4 = 9",
        "5 / 0 = 0 and",
        "no equation = 3 ",
        "2 ** 9999999 = 4 is",
    ],
)
def test_what_is_right_unfinished_or_not_understood_stays(text: str) -> None:
    assert corrected(text) is None
