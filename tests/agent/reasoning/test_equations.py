"""Arithmetic in notes: what is wrong is corrected, and what is not understood is left alone."""

from __future__ import annotations

import pytest

from agent.reasoning.equations import corrected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The stamps are 11 + 20 + 7 = 48 in all", "The stamps are 11 + 20 + 7 = 38"),
        ("(50 + 15 + 30) = 105 dollars", "(50 + 15 + 30) = 95"),
        ("is 2 * (3 + 4) = 15 y", "is 2 * (3 + 4) = 14"),
        ("3 * 5 = 15, then 15 × 2 = 35.\n", "3 * 5 = 15, then 15 × 2 = 30"),
        ("x 5 * 3 = 3 * 5 = 16 a", "x 5 * 3 = 3 * 5 = 15"),
        ("That is 0.25 * (10 + 18) = 0 apples", "That is 0.25 * (10 + 18) = 7"),
        ("Each gets 7 / 3 = 2.5 of them", "Each gets 7 / 3 = 2.33"),
        ("1,200 ÷ 4 = 400 a month", "1,200 ÷ 4 = 300"),
        ("3 x 4 + 2 = 15 in all", "3 x 4 + 2 = 14"),
        ("16 \\div 2 + 4 = 13 apples", "16 \\div 2 + 4 = 12"),
        ("\\[ 400 \\times (1 - 0.20) = 340 \\]", "\\[ 400 \\times (1 - 0.20) = 320"),
        ("\\[34 + 36 + 18 = 98\\]", "\\[34 + 36 + 18 = 88"),
        ("10 − 3 + 2 = 5 boxes", "10 − 3 + 2 = 9"),
        ("340 + 60 = 388 pages.", "340 + 60 = 400"),
        ("12 * 4 = 4 apples.", "12 * 4 = 48"),
        ("costs 3 dollars. 4 * 5 = 21 y", "costs 3 dollars. 4 * 5 = 20"),
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
        "400 \\times (1 - 0.20) = 400 \\times 0.80 = 320 \\]",
        "400 \\times (1 - 0.20) = 400 \\ti",
        "2 \\times 30 - 12 = 48 \\]",
        "2 \\times  30 - 12 = 48 \\]",
        "16 \\div 2 + 4 = 12 \\]",
        "3 x 4 + 2 = 14 a",
        "3 + 4 = 2 x 3 + 1 a",
        "2 times 3 + 4 = 10 a",
        "10% of 200 + 50 = 70 a",
        "10% 200 + 50 = 70 a",
        "√16 + 2 = 6 a",
        "\\sqrt 16 + 2 = 6 a",
        "10 − 3 + 2 = 9 a",
        "10 – 3 + 2 = 9 a",
        "45 + 5 = 2x - 5 + 5 \\]",
        "1 / 5 = 20% of it",
        "1000 * 1500 = 1.5 million of",
        f"{'5 + ' * 40}5 = 205 a",
        "3 ⋅ 4 + 2 = 14 apples",
        "12 ∕ 4 + 2 = 5 a",
        "12 : 4 + 2 = 5 apples",
        "10 — 3 + 2 = 9 a",
        "∛8 + 2 = 4 a",
        "1,5 * 2 = 3 liters",
        "1.200 + 300 = 1.500 a",
        "60 + 60 = 2 hours of",
        "7 * 24 = 1 week a",
        "25 * 4 = 1 dollar a",
        "is 10 + 4 = 2 pm so",
        "1 / 4 = 25 per cent of",
    ],
)
def test_what_is_right_unfinished_or_not_understood_stays(text: str) -> None:
    assert corrected(text) is None
