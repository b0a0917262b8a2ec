"""Amounts of money as people say them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from agent.capture.amounts import Amount

AMOUNT = Amount(most=Decimal(10_000_000))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("twenty five dollars fifty", "25.50"),
        ("$25.50.", "25.50"),
        ("twenty five fifty", "25.50"),
        ("twenty five dollars and five cents", "25.05"),
        ("fifty cents", "0.50"),
        ("a hundred and twenty dollars", "120.00"),
        ("twelve hundred", "1200.00"),
        ("two and a half thousand dollars", "2500.00"),
        ("one point five thousand dollars", "1500.00"),
        ("1.25 thousand", "1250.00"),
        ("12.5", "12.50"),
        ("$1,200", "1200.00"),
        ("two and a half dollars", "2.50"),
        ("two point five", "2.50"),
        ("2.5 million", "2500000.00"),
        ("it's about forty", "40.00"),
    ],
)
def test_amounts(text: str, value: str) -> None:
    entry = AMOUNT.hear(text, None)
    assert entry is not None
    assert AMOUNT.to_json(AMOUNT.value(entry)) == value


def test_a_part_of_a_million_is_asked_for_again() -> None:
    assert AMOUNT.hear("point five million", None) is None


def test_the_cents_are_corrected_alone() -> None:
    assert AMOUNT.correct("no, sixty cents", Decimal("25.50")) == Decimal("25.60")
    assert AMOUNT.correct("no, thirty dollars", Decimal("25.50")) == Decimal("30.00")


def test_an_amount_that_is_too_high_is_refused() -> None:
    assert Amount(most=Decimal(100)).problem(Decimal(200)) == ("The amount has to be between 1 cent and 100 dollars.")


def test_it_is_read_back_in_both_units() -> None:
    assert AMOUNT.read_back(Decimal("1.50"), careful=False) == "1 dollar and 50 cents"
    assert AMOUNT.press("2550", None) == Decimal("25.50")


@pytest.mark.parametrize("text", ["a lot", "I don't know"])
def test_what_is_no_amount(text: str) -> None:
    assert AMOUNT.hear(text, None) is None
