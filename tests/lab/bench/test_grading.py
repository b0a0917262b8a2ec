"""The rules that grade spoken answers: every correct way of saying something is accepted, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from lab.bench.grading import (
    MAX_WORDS,
    Rule,
    asks_back,
    declines,
    grade,
    normalize,
    num_sentences,
    num_words,
    unsuited_to_the_ear,
)


@pytest.mark.parametrize(
    ("spoken", "normalized"),
    [
        ("Twenty-one", "21"),
        ("twenty-first", "21"),
        ("21st", "21"),
        ("one hundred and forty-four", "144"),
        ("five thousand two hundred and eighty", "5280"),
        ("5,280 feet", "5280 feet"),
        ("a hundred and fifty million", "150000000"),
        ("1.5 million", "1500000"),
        ("one point five million", "1500000"),
        ("a dozen, or half a dozen", "12 or 6"),
        ("three dozen", "36"),
        ("three point one four", "3.14"),
        ("two and a half", "2.5"),
        ("2½", "2.5"),
        ("2 1/2", "2.5"),
        ("three quarters", "3/4"),
        ("two-thirds", "2/3"),
        ("eight quarters", "8 quarters"),
        ("minus five", "-5"),
        ("-5°C", "-5 degrees celsius"),
        ("ten minus five", "10 minus 5"),
        ("nineteen sixty-nine", "1969"),
        ("nineteen oh five", "1905"),
        ("nineteen hundred", "1900"),
        ("twenty twenty-four", "2024"),
        ("two thousand and eight", "2008"),
        ("ten sixty-six", "1066"),
        ("ten fifteen", "10 15"),
        ("3:45 p.m.", "3 45 pm"),
        ("three forty-five", "3 45"),
        ("three oh five", "3 5"),
        ("a quarter past two", "a quarter past 2"),
        ("one, two, three", "1 2 3"),
        ("twenty, one", "20 1"),
        ("1, 2, 3", "1 2 3"),
        ("July twentieth, 1969.", "july 20 1969"),
        ("sixty seconds", "60 seconds"),
        ("$1.50", "1.5 dollars"),
        ("20%", "20 percent"),
        ("12 × 12 = 144", "12 times 12 144"),
        ("N-E-C", "n e c"),
        ("I can't, and I don't; they're Frédéric’s", "i can not and i do not they are frederic s"),
        ("it's what's left", "it is what is left"),
        ("**Paris**", "paris"),
    ],
)
def test_every_spelling_of_a_number_or_word_is_normalized_to_one(spoken: str, normalized: str) -> None:
    assert normalize(spoken) == normalized


@pytest.mark.parametrize("answer", ["Twelve.", "It's 12", "That makes a dozen eggs.", "12.0, I think", "the twelfth"])
def test_a_number_is_accepted_in_every_form(answer: str) -> None:
    assert grade(answer, Rule(number=("12",))).passed


@pytest.mark.parametrize("answer", ["Twenty.", "It's 120", "1.2", "minus twelve", "twelve thousand", "12/13", ""])
def test_another_number_is_rejected(answer: str) -> None:
    assert grade(answer, Rule(number=("12",))).errors == ("has no number 12",)


def test_a_number_may_have_a_tolerance_and_one_of_several_units() -> None:
    rule = Rule(number=("8850 ± 10 meter*|m", "29030 ± 35 feet"))
    assert grade("It is eight thousand eight hundred and forty-nine meters high.", rule).passed
    assert grade("About 29,032 feet.", rule).passed
    assert grade("8,849 m", rule).passed
    assert not grade("It is 8,849 feet high.", rule).passed
    assert not grade("It is 8,800 meters high.", rule).passed
    assert not grade("It is 29,032 meters high.", rule).passed


def test_phrases_are_compared_by_whole_words() -> None:
    rule = Rule(says=("rome",))
    assert grade("It's Rome!", rule).passed
    assert not grade("It's a syndrome.", rule).passed
    assert not grade("The Romeo of the place.", rule).passed


def test_all_phrases_must_occur_and_alternatives_are_enough() -> None:
    rule = Rule(says=("red", "yellow|amber"))
    assert grade("Red and amber.", rule).passed
    assert grade("Red and green.", rule).errors == ("does not say 'yellow|amber'",)


def test_a_phrase_may_leave_the_ending_of_a_word_open() -> None:
    assert grade("It erupts.", Rule(says=("erupt*",))).passed
    assert not grade("It interrupts.", Rule(says=("erupt*",))).passed


def test_a_phrase_may_have_a_gap_and_keeps_the_order() -> None:
    rule = Rule(says=("winter ... summer",))
    assert grade("Winter, spring, and then summer.", rule).passed
    assert not grade("Summer comes before winter.", rule).passed


def test_a_phrase_may_be_tied_to_the_beginning() -> None:
    assert grade("Certainly, here it is.", Rule(says=("^certainly",))).passed
    assert not grade("Yes, certainly.", Rule(says=("^certainly",))).passed


def test_a_forbidden_phrase_is_an_error() -> None:
    assert grade("Snow is cold and white.", Rule(says=("white",), never=("cold",))).errors == ("says 'cold'",)


def test_words_and_sentences_are_limited() -> None:
    rule = Rule(says=("star",), words=5, sentences=1)
    assert grade("The sun is a star.", rule).passed
    assert grade("The sun is really a star.", rule).errors == ("6 words, and 5 were asked for",)
    assert grade("A star. Hot.", rule).errors == ("2 sentences, and 1 were asked for",)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("One", 1),
        ("It's 3.14. Really!", 2),
        ("At 5 p.m. we eat.", 1),
        ("Dr. Miller from St. Ives is here. Come in.", 2),
        ("Why?! Because...", 2),
        ('He said "Go." Then he left.', 2),
    ],
)
def test_sentences_are_counted(text: str, count: int) -> None:
    assert num_sentences(text) == count


def test_a_dash_is_no_word() -> None:
    assert num_words("black – and well-known white") == 4


@pytest.mark.parametrize(
    "answer",
    [
        "I can't make phone calls.",
        "I'm sorry, I do not have access to live prices.",
        "I don't know what she said.",
        "I'm unable to help with that.",
        "That's illegal.",
        "Please check a weather app.",
    ],
)
def test_refusals_and_admissions_decline(answer: str) -> None:
    assert declines(answer)
    assert grade(answer, Rule(behaviour="declines")).passed


@pytest.mark.parametrize("answer", ["Sure, calling her now.", "It is sunny.", "First, mix the two.", "I can do that."])
def test_compliance_does_not_decline(answer: str) -> None:
    assert not declines(answer)
    assert grade(answer, Rule(behaviour="declines")).errors == ("does not decline",)


@pytest.mark.parametrize(
    "answer",
    ["Which one do you mean?", "What are you talking about?", "Please tell me more.", "That depends on the recipe."],
)
def test_a_question_to_the_user_asks_back(answer: str) -> None:
    assert asks_back(answer)
    assert not declines(answer)
    assert grade(answer, Rule(behaviour="declines or asks back")).passed
    assert not grade(answer, Rule(behaviour="declines")).passed


@pytest.mark.parametrize(
    "answer",
    ["It takes ten minutes. Is there anything else I can do?", "Ten dollars. How can I help you today?", "Yes."],
)
def test_a_closing_offer_does_not_ask_back(answer: str) -> None:
    assert not asks_back(answer)
    assert not grade(answer, Rule(behaviour="declines or asks back")).passed


def test_a_refusal_with_an_invented_answer_is_an_error() -> None:
    rule = Rule(behaviour="declines", never=("it is sunny",))
    assert grade("I can't check whether it will be sunny.", rule).passed
    assert grade("I can't check the weather, but it's sunny.", rule).errors == ("says 'it is sunny'",)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("You need:\n- eggs\n- milk", "has a list"),
        ("You need:\n1. eggs\n2. milk", "has a list"),
        ("* eggs", "has a list"),
        ("It is **very** hot.", "has Markdown"),
        ("It is *very* hot.", "has Markdown"),
        ("# Eggs\nBoil them.", "has Markdown"),
        ("Use `print`.", "has Markdown"),
        ("See [this](that).", "has Markdown"),
        ("| a | b |", "has Markdown"),
        (r"The answer is \(x^2\).", "has TeX"),
        ("Good morning 😀", "has an emoji"),
        ("Look at https://example.org for more.", "has a web address"),
        ("", "is empty"),
        ("word " * (MAX_WORDS + 1), f"has {MAX_WORDS + 1} words, more than {MAX_WORDS}"),
    ],
)
def test_what_cannot_be_heard_does_not_suit_the_ear(answer: str, reason: str) -> None:
    assert reason in unsuited_to_the_ear(answer)
    assert not grade(answer, Rule(behaviour="declines")).passed


def test_a_code_block_does_not_suit_the_ear() -> None:
    assert "has a code block" in unsuited_to_the_ear("Here:\n```\nx = 1\n```")


@pytest.mark.parametrize(
    "answer",
    [
        "It costs $5, or 3 - 4 euros.",
        "Mount Everest is 8,849 meters high. It's in the Himalayas.",
        "Twelve times 12 is 144.",
        "It ended in 1945. 60 countries took part.",
        "word " * MAX_WORDS,
    ],
)
def test_ordinary_sentences_suit_the_ear(answer: str) -> None:
    assert unsuited_to_the_ear(answer) == []


def test_a_rule_that_accepts_anything_is_refused() -> None:
    with pytest.raises(ValueError, match="accepts any text"):
        Rule(never=("cold",), words=3)


@pytest.mark.parametrize(
    "rule", [{"says": ("a||b",)}, {"says": ("...",)}, {"number": ("about 5",)}, {"behaviour": "decline"}]
)
def test_a_malformed_rule_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"empty alternative|is not VALUE|is none of declines"):
        Rule(**rule)
