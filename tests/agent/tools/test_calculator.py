"""Expressions of the language model, and which of them count. tests/agent/tools/test_sums.py has the user's words."""

from __future__ import annotations

import re

import pytest

from agent.tools.calculator import BadExpression, calculate, calculator_tools, evaluate
from agent.tools.function_tool import NO_RESULT, Caller


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("12 * (3 + 4)", 84), ("15% of 80", 12), ("17 times 23", 391), ("1,250 divided by 4", 312.5),
        ("2 to the power of 10", 1024), ("-3 squared", -9), ("9 + 10 =", 19), ("round(2.567, 1)", 2.6),
        ("20 percent of $45.50", 9.1), ("sin(30)", 0.5), ("the square root of 16", 4),
    ],
)  # fmt: skip
def test_expressions_are_computed(expression: str, value: float) -> None:
    assert evaluate(expression) == pytest.approx(value)


@pytest.mark.parametrize(
    "expression",
    [
        "1 / 0", "__import__('os').system('true')", "9 ** 9 ** 9", "(1).__class__", "x + 1", "", "10 ** 5000",
        "5 miles in kilograms", "'a' * 10", "[1] * 9", "lambda: 1", "1 " * 200, "(" * 150 + "1",
    ],
)  # fmt: skip
def test_what_cannot_be_computed_is_refused(expression: str) -> None:
    with pytest.raises(BadExpression):
        evaluate(expression)


def test_a_power_is_a_float_so_that_none_grows_without_limit() -> None:
    assert evaluate("7 ** 300") == 7.0**300


@pytest.mark.parametrize(
    ("expression", "said", "spoken"),
    [
        (
            "100 fahrenheit - 32",
            "Convert 100 F to Celsius.",
            "100 degrees Fahrenheit is 37.78 degrees Celsius.",
        ),
        ("15% of 80", "What is 20% of 60?", "That's 12."),
        ("miles", "How many kilometers are 5 miles?", "5 miles are 8.05 kilometers."),
        ("12 * (3 + 4)", "How many people live in 5 houses?", NO_RESULT),
        ("sin(30)", "What's the sine of thirty degrees?", "That's 0.5."),
        ("12 + 3", "I sell twelve, three and five. How many are that?", NO_RESULT),
        ("12 /", "What's twelve divided by something?", NO_RESULT),
    ],
)
def test_the_users_own_words_count_and_an_expression_with_all_of_their_numbers(
    expression: str, said: str, spoken: str
) -> None:
    assert calculate(expression, Caller("me", said)) == spoken


@pytest.mark.parametrize(
    ("said", "is_offered"),
    [
        ("Fifteen times twelve, roughly", True),
        ("How much is 144/12?", True),
        ("I paid 80 - 15 for it", True),
        ("You can call me at 619-332-8075.", False),
        ("What is 619-332-8075?", False),
        ("It's open 24/7, and from 9-5 on 11/23/2026.", False),
    ],
)
def test_groups_of_digits_ranges_and_dates_are_no_sums(said: str, is_offered: bool) -> None:
    (tool,) = calculator_tools()
    assert bool(re.search(tool.traits.said, said, re.IGNORECASE)) == is_offered
