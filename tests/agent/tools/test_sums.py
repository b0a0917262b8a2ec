"""Questions that can be computed from the user's own words, and those that must not be."""

from __future__ import annotations

import tomllib
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools.calculator import calculate, certain_sum
from agent.tools.function_tool import Caller, Spoken
from agent.tools.sums.quantities import Quantity
from agent.tools.time_questions import certain_words
from agent.tools.time_sums import work_out
from lab.bench.grading import Rule, grade

NOW = datetime(2026, 11, 22, 15, 0).astimezone()  # a Sunday
CASES = tomllib.loads(
    (Path(__file__).parents[3] / "lab/benchmarks/builtin_tools/sums.toml").read_text(encoding="utf-8")
)
NOT_UNDERSTOOD = ("How much do seven coffees cost if one costs three fifty?",)
HEARD = {"How high is Mount Everest?": "Mount Everest is 8,849 meters high."}

WORDS = st.sampled_from(
    "what's how much many is are plus minus times divided by percent of off half a the square root sum and , . ? 2 3/4 "
    "17 $8.50 five dollars people split each miles in kilometers that it add multiply double average difference "
    "( ) boxes eggs costs an hour friday days after before at noon pm until born 1990 leap year which more or".split()
)


def answer(turns: list[tuple[str, str]]) -> str | None:
    """What one of the two tools says for certain; None if the language model decides."""
    words = certain_words([said for said, _ in turns], NOW)
    if words is not None:
        return work_out(words, NOW)
    certain = certain_sum(turns)
    if certain is None:
        return None
    output = calculate("", Caller("me", certain[1]))
    assert isinstance(output, Spoken), f"{certain[1]!r} needs earlier words"
    return output


def ask(questions: str | list[str]) -> str | None:
    turns: list[tuple[str, str]] = []
    for said in [questions] if isinstance(questions, str) else questions:
        spoken = answer([*turns, (said, "")])
        turns.append((said, spoken or HEARD.get(said, "")))
    return spoken


@pytest.mark.parametrize(
    "case", [case for part in CASES.values() for case in part["need"]], ids=lambda case: case["ask"]
)
def test_what_can_be_computed_is_answered_right(case: dict[str, Any]) -> None:
    fields = {name: tuple(value) for name, value in case.items() if name != "ask"}
    spoken = ask(case["ask"])
    if case["ask"] in NOT_UNDERSTOOD:
        assert spoken is None
    else:
        assert spoken is not None
        assert grade(spoken, Rule(**fields)).passed, spoken


@pytest.mark.parametrize("turns", [turns for part in CASES.values() for turns in part["none"]], ids=str)
def test_numbers_that_ask_for_no_sum_are_left_to_the_language_model(turns: str | list[str]) -> None:
    assert ask(turns) is None


@pytest.mark.parametrize(
    ("said", "spoken"),
    [
        ("What's the square root of eighty-one?", "That's 9."),
        ("How many times does seven go into fifty?", "7 times, with 1 left over."),
        ("What's ten divided by zero?", None),
        ("What's the square root of minus four?", None),
        ("What's ten to the power of nine hundred?", None),
        ("How many quarters make two dollars?", "2 dollars are 8 quarters."),
        ("How many ounces are in a cup?", "1 cup is 8 fluid ounces."),
        ("How many days are in two years?", None),
        ("How many miles are in two pounds?", None),
        ("What's three dollars plus two euros?", None),
        ("Which is heavier, a pound or sixteen ounces?", "They are the same: 1 pound is 16 ounces."),
        ("Which is heavier, a pound or a mile?", None),
        ("Eggs come in boxes of six. How many boxes do I need for twenty eggs?", "That's 3.33, so 4 boxes."),
        ("Our bill is ninety dollars and there are three of us. How much does each of us pay?", "That's 30 dollars."),
        ("What's fifty cents times six?", "That's 3 dollars."),
        ("What is the remainder when 17 is divided by 5?", "That's 2."),
        ("A $60 sweater is 25% off. What's the sale price?", "That's 45 dollars."),
        ("I read 30 pages a day. How many pages do I read in a week?", "That's 210 pages."),
        ("Each ticket costs $12. How much are 5 tickets?", "That's 60 dollars."),
        ("How many minutes are there between 1:15 and 3:00?", "It is 105 minutes."),
        ("Sarah has 15 apples. She gives 6 to Tom. How many does she have left?", "That's 9."),
        ("What's 12 * (3 + 4)?", "That's 84."),
        ("What's 12 * (3 + 4 # 2)?", None),
        ("What is 15-7?", "That's 8."),
        ("15-7.", "That's 8."),
        ("I work 9-5.", None),
        ("The code is 777-1249.", None),
        ("What's 619-332-8075?", None),
    ],
)
def test_what_is_said(said: str, spoken: str | None) -> None:
    assert ask(said) == spoken


def test_a_follow_up_refers_to_the_last_result_or_to_the_only_number_that_was_heard() -> None:
    assert ask(["What's two plus three?", "Times four.", "And half of that?"]) == "That's 10."
    assert ask(["What's twenty percent of fifty?", "And forty percent?"]) == "That's 20."
    assert ask(["What's twenty percent of fifty?", "And thirty?"]) is None  # thirty percent, or of thirty?
    assert ask(["What's nine plus four?", "And minus six plus two?"]) == "That's 9."
    assert ask(["What's nine plus four?", "What's minus six plus two?"]) == "That's minus 4."
    assert ask(["What's 15 plus 27?", "And if you take away 10?"]) == "That's 32."
    assert ask(["What's five kilometers in miles?", "And ten?"]) == "10 kilometers are 6.21 miles."
    heard = [("How many legs does a spider have?", "A spider has eight legs.")]
    assert answer([*heard, ("And twice that?", "")]) == "That's 16."
    two_numbers = [("How tall is the tower?", "It is 330 meters high and 125 wide.")]
    assert answer([*two_numbers, ("How much is that in feet?", "")]) is None
    assert ask(["What's two plus three?", "Who was Albert Einstein?", "Plus four?"]) is None


def test_a_statement_and_the_question_after_it_are_read_together() -> None:
    assert ask(["I have three sons and two daughters.", "How many children do I have?"]) == "That's 5 children."
    assert (
        ask(["I need a hundred grams for each person.", "How much do I need for four people?"]) == "That's 400 grams."
    )


def test_a_number_that_the_user_told_may_be_referred_to() -> None:
    assert ask(["I'm thinking of the number twelve.", "What is twice my number?"]) == "That's 24."
    assert ask(["I ran ten kilometers today.", "How much is that in miles?"]) == "10 kilometers are 6.21 miles."
    assert ask(["I have two sons and one cat.", "What's twice that?"]) is None


def test_quantities_of_different_kinds_are_not_converted() -> None:
    assert Quantity(Fraction(1), "mile").to("pound") is None


@given(st.lists(st.lists(WORDS, min_size=1, max_size=14).map(" ".join), min_size=1, max_size=3))
def test_any_words_are_read_without_an_error(turns: list[str]) -> None:
    answer([(said, "It is 7 miles.") for said in turns])
