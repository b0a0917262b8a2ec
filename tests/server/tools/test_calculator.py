"""Arithmetic and conversions, and what is refused."""

from __future__ import annotations

import pytest

from server.tools.calculator import BadExpression, calculate, evaluate, result
from server.tools.function_tool import NO_RESULT, Caller


@pytest.mark.parametrize(
    ("expression", "spoken"),
    [
        ("12 * (3 + 4)", "The result is 84."), ("15% of 80", "The result is 12."),
        ("17 times 23", "The result is 391."),
        ("1,250 divided by 4", "The result is 312.5."), ("the square root of 2", "The result is 1.41."),
        ("2 to the power of 10", "The result is 1,024."), ("100 / 3", "The result is 33.33."),
        ("1 / 8000", "The result is 0.000125."), ("-3 squared", "The result is -9."), ("9 + 10 =", "The result is 19."),
        ("round(2.567, 1)", "The result is 2.6."), ("20 percent of $45.50", "The result is 9.1."),
        ("5 miles in kilometers", "5 miles is 8.05 kilometers."),
        ("convert 100 degrees fahrenheit to celsius", "100 fahrenheit is 37.78 celsius."),
        ("a pound in grams", "1 pound is 453.59 grams."), ("6 feet to cm", "6 feet is 182.88 cm."),
        ("60 mph in km/h", "60 mph is 96.56 km/h."), ("2 cups to milliliters", "2 cups is 473.18 milliliters."),
        ("3 hours in minutes", "3 hours is 180 minutes."),
    ],
)  # fmt: skip
def test_results_are_said(expression: str, spoken: str) -> None:
    assert result(expression) == spoken


@pytest.mark.parametrize(
    "expression",
    [
        "1 / 0", "__import__('os').system('true')", "9 ** 9 ** 9", "(1).__class__", "x + 1", "", "10 ** 5000",
        "5 miles in kilograms", "5 blorps in miles", "'a' * 10", "[1] * 9", "lambda: 1", "1 " * 200, "(" * 150 + "1",
    ],
)  # fmt: skip
def test_what_cannot_be_computed_is_refused(expression: str) -> None:
    with pytest.raises(BadExpression):
        result(expression)


def test_a_power_is_a_float_so_that_none_grows_without_limit() -> None:
    assert evaluate("7 ** 300") == 7.0**300


@pytest.mark.parametrize(
    ("expression", "said", "spoken"),
    [
        (
            "100 fahrenheit - 32 celsius",
            "Convert 100 degrees Fahrenheit to Celsius.",
            "100 Fahrenheit is 37.78 Celsius.",
        ),
        ("15% of 80", "What is 20% of 60?", "The result is 12."),
        ("1764**0.5", "What is the square root of 1764?", "The result is 42."),
        ("miles", "How many kilometers are 5 miles?", "5 miles is 8.05 kilometers."),
        ("", "What is a thousand minus two hundred and fifty?", "The result is 750."),
        ("", "How many kilograms is ten pounds, roughly?", "10 pounds is 4.54 kilograms."),
        ("", "How many minutes is two and a half hours?", "2.5 hours is 150 minutes."),
        ("12 * (3 + 4)", "How many kilometers or 5 miles?", "5 miles is 8.05 kilometers."),
        ("12 * (3 + 4)", "How many people live in 5 houses?", NO_RESULT),
        ("5 miles in kilometers", "How many kilometers are five miles?", "5 miles is 8.05 kilometers."),
    ],
)
def test_the_users_own_words_count_where_the_model_misreads_them(expression: str, said: str, spoken: str) -> None:
    assert calculate(expression, Caller("me", said)) == spoken
