"""The probability that a turn is over, and the silence to wait for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice.endpointing import PauseHistory, is_backchannel, is_dictating, predict_endpoint
from voice.timing import Timing

TIMING = Timing()


def wait_ms(text: str, timing: Timing = TIMING, **evidence: Any) -> int:
    return predict_endpoint(text, timing, **evidence).wait_ms


@pytest.mark.parametrize(
    "text",
    [
        "What time is it?",
        "Where is the station?",
        "Who are you waiting for?",
        "What is it like?",
        "Did it go well?",
        "Huh?",
    ],
)
def test_a_short_question_gets_a_short_wait(text: str) -> None:
    assert wait_ms(text) < 350


@pytest.mark.parametrize(
    "text",
    [
        "I went to the",
        "Tell me about um",
        "Could you, um?",
        "What is the, uh?",
        "And then,",
        "I think that we should...",
        "Because it was raining",
        "Before we begin.",
        "I was, like",
        "Well...",
        "Let me see.",
    ],
)
def test_an_incomplete_text_gets_a_long_wait(text: str) -> None:
    assert wait_ms(text) >= TIMING.longest_wait_ms * 0.9


def test_a_higher_probability_of_a_complete_text_shortens_the_wait() -> None:
    waits = [wait_ms("Play the song from Monday", text_probability=p) for p in (0.02, 0.3, 0.5, 0.7, 0.98)]
    assert waits == sorted(waits, reverse=True)
    assert waits[-1] == TIMING.shortest_wait_ms and waits[0] == TIMING.patient_wait_ms


def test_the_probability_from_the_audio_changes_the_wait() -> None:
    assert wait_ms("Turn it off.", audio_probability=0.95) < wait_ms("Turn it off.", audio_probability=0.05)


@pytest.mark.parametrize(
    ("text", "dictating"),
    [
        ("My number is five five five", True),
        ("0 7 7 3", True),
        ("It's spelled R E J", True),
        ("You can call me at 415", True),
        ("Please note O2O, 7946", True),
        ("Please write down 7946, 1833.", True),
        ("The code is 4 4 1 9 2 0 5 5 1 2", False),  # as long as a phone number
        ("My card number is 4 4 1 9 2 0 5 5 1 2 7 7", True),  # which has sixteen
        ("My card number is 4419 2055 1277 3046.", False),
        ("The zip code is 94110.", False),
        ("My card ends in 3.8.", True),
        ("My card ends in 3.8. 2.6.", False),
        ("It's the one ending in 4 0 1 2", False),
        ("It's 9383.", True),
        ("It's 1984.", False),
        ("Call me on 07405.", True),
        ("It expires 09.", True),
        ("The plate is LD63.", True),
        ("It's JD 002 2576 183.", True),  # ten digits, but no telephone number ends in three
        ("What is two plus two", False),
        ("What is 15 times 3?", False),
        ("I have two", False),
        ("I was born in 1984", False),
        ("Tell me a joke", False),
    ],
)
def test_a_number_in_dictation_gets_the_dictation_wait(text: str, dictating: bool) -> None:
    assert is_dictating(text) is dictating
    if dictating:
        assert wait_ms(text, text_probability=0.9) == TIMING.dictation_wait_ms
        assert wait_ms(text, text_probability=0.02) == TIMING.dictation_wait_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What should I bring to a paper?", TIMING.longest_wait_ms),  # misheard, but nothing is missing
        ("What is the capital of?", TIMING.patient_wait_ms),  # recognizers put question marks anywhere
        ("What should I bring to a paper.", TIMING.patient_wait_ms),
    ],
)
def test_a_question_that_makes_no_sense_is_not_waited_for_as_if_unfinished(text: str, expected: int) -> None:
    assert wait_ms(text, text_probability=0.006) == expected


def test_a_user_who_paused_before_gets_a_longer_wait_unless_they_have_certainly_finished() -> None:
    pauses = PauseHistory()
    before = wait_ms("Please bring me some tea", text_probability=0.6, pauses=pauses)
    pauses.add(800)
    after = wait_ms("Please bring me some tea", text_probability=0.6, pauses=pauses)
    assert before < after <= TIMING.patient_wait_ms
    assert wait_ms("What time is it?", text_probability=0.95, pauses=pauses) == TIMING.shortest_wait_ms
    pauses.begin_turn()
    assert wait_ms("Please bring me some tea", text_probability=0.6, pauses=pauses) == before


def test_the_typical_pauses_of_a_user_lengthen_the_wait_in_later_turns() -> None:
    pauses = PauseHistory()
    text = "Please bring me some tea"
    before = wait_ms(text, text_probability=0.6, pauses=pauses)
    for length in (140, 600, 160, 560):  # pauses below the shortest wait do not count
        pauses.add(length)
    pauses.begin_turn()
    assert wait_ms(text, text_probability=0.6, pauses=pauses) == 580 > before
    assert wait_ms("What time is it?", text_probability=0.95, pauses=pauses) == TIMING.shortest_wait_ms
    for _ in range(6):
        pauses.add(150)
    pauses.begin_turn()
    assert wait_ms(text, text_probability=0.6, pauses=pauses) == before  # the earlier pauses are no longer remembered


def test_a_user_who_dictates_with_long_pauses_gets_the_longer_of_both_waits() -> None:
    pauses = PauseHistory()
    pauses.add(900)
    assert wait_ms("My number is five five five", text_probability=0.5, pauses=pauses) > TIMING.dictation_wait_ms
    patient = Timing(longest_wait_ms=1200, patient_wait_ms=1400)
    assert wait_ms("My number is five five five", patient, text_probability=0.2) > patient.dictation_wait_ms


@pytest.mark.parametrize(
    "text",
    [
        "It is 415-926-53-58",
        "Please note O2O, 7946, 1833.",
        "Suppose it rains. What should I bring to a paper?",
        "The code is 771249",
        "My card ends in 3.8. 2.6.",
    ],
)
@pytest.mark.parametrize("text_probability", [0.01, 0.6])
def test_after_a_whole_number_or_question_nobody_waits_longer_because_of_a_pause_before(
    text: str, text_probability: float
) -> None:
    pauses = PauseHistory()
    pauses.add(1000)
    assert wait_ms(text, text_probability=text_probability, pauses=pauses) <= TIMING.longest_wait_ms


@pytest.mark.parametrize("text", ["I am doing well.", "That is what it looks like."])
def test_words_that_also_end_sentences_are_not_a_hesitation(text: str) -> None:
    assert wait_ms(text, text_probability=0.95) == TIMING.statement_wait_ms


def test_a_lone_phrase_gets_a_long_wait_unless_it_answers_a_question() -> None:
    phrase = "In the middle of June"
    assert wait_ms(phrase, text_probability=0.9) > 600
    assert wait_ms(phrase, text_probability=0.9, answers_question=True) < 350
    assert wait_ms("If it rains", text_probability=0.8) == TIMING.patient_wait_ms
    sentence = "When I was young we lived in a small house by the sea"
    assert wait_ms(sentence, text_probability=0.97) == TIMING.statement_wait_ms


@pytest.mark.parametrize(
    "text",
    [
        "I lost my wallet on the train last night.",
        "What a day! The train was late.",
        "So my tooth hurts",
    ],
)
def test_after_a_statement_a_question_may_follow(text: str) -> None:
    assert wait_ms(text, text_probability=0.98) == TIMING.statement_wait_ms
    assert wait_ms(text, text_probability=0.98, answers_question=True) < TIMING.statement_wait_ms
    eager = Timing(shortest_wait_ms=160, longest_wait_ms=450)
    assert wait_ms(text, eager, text_probability=0.98) == eager.longest_wait_ms


@pytest.mark.parametrize(
    "text",
    ["My tooth hurts. What can I do?", "And what is that?", "Okay, set a timer.", "Hello there!", "Cancel that."],
)
def test_after_a_question_or_a_command_nothing_has_to_follow(text: str) -> None:
    assert wait_ms(text, text_probability=0.98) < 350


@pytest.mark.parametrize(
    "text",
    [
        "What is the table made of?",
        "So where do these apples come from.",
        "What does your brother look like?",
        "Can you tell me what it is used for?",
        "What's the book about?",
        "I like that song. Who was it written by?",
    ],
)
def test_a_question_may_end_in_a_preposition(text: str) -> None:
    assert wait_ms(text, text_probability=0.03) < TIMING.statement_wait_ms


@pytest.mark.parametrize(
    "text",
    [
        "What is the capital of",
        "What do you think about",
        "Is the table made of",
        "How do I get to",
        "What is the distance from",
        "Who wrote the book with",
    ],
)
def test_a_question_that_lacks_the_object_of_its_preposition_is_incomplete(text: str) -> None:
    assert wait_ms(text, text_probability=0.03) == TIMING.patient_wait_ms


def test_in_noise_words_that_look_incomplete_may_be_misheard() -> None:
    text = "Why do cats purr when they are half"
    assert wait_ms(text, text_probability=0.04) == TIMING.patient_wait_ms
    assert wait_ms(text, text_probability=0.05, noisy=True) < TIMING.longest_wait_ms
    assert wait_ms("I went to the", text_probability=0.02, noisy=True) == TIMING.patient_wait_ms


@given(st.text(max_size=80), st.none() | st.floats(0, 1), st.none() | st.floats(0, 1))
def test_every_wait_is_within_its_bounds(
    text: str, text_probability: float | None, audio_probability: float | None
) -> None:
    prediction = predict_endpoint(text, TIMING, text_probability=text_probability, audio_probability=audio_probability)
    assert TIMING.shortest_wait_ms <= prediction.wait_ms <= TIMING.patient_wait_ms
    assert 0 <= prediction.end_probability <= 1


@pytest.mark.parametrize(
    ("text", "backchannel"),
    [("Mhm.", True), ("Yeah, yeah.", True), ("Oh, I see.", True), ("Right", True), ("", True),
     ("Stop", False), ("No.", False), ("Right, but what about cats?", False), ("Yes I would", False)],
)  # fmt: skip
def test_a_backchannel_is_recognized(text: str, backchannel: bool) -> None:
    assert is_backchannel(text) is backchannel


def test_after_a_whole_number_nobody_waits_for_another_sentence() -> None:
    assert wait_ms("My number is 415 926 5358.", text_probability=0.9) < TIMING.statement_wait_ms
    assert wait_ms("My card number is 4419 2055 1277 3046.", text_probability=0.9) < TIMING.statement_wait_ms


def test_a_code_of_the_usual_length_is_waited_for_less_than_one_that_goes_on() -> None:
    assert wait_ms("The code is 821237.", text_probability=0.9) == TIMING.statement_wait_ms
    assert wait_ms("The code is 82123.", text_probability=0.9) == TIMING.dictation_wait_ms


def test_a_code_that_may_be_half_of_a_longer_one_is_waited_for_as_long_as_a_pause_before() -> None:
    pauses = PauseHistory()
    pauses.add(700)
    assert wait_ms("The code is 77 12", text_probability=0.5, pauses=pauses) > TIMING.dictation_wait_ms


def test_words_that_may_be_misheard_are_not_waited_for_as_long_as_unfinished_ones() -> None:
    assert wait_ms("any chance of snow on fried.", text_probability=0.09) == TIMING.doubtful_wait_ms
    assert wait_ms("any chance of snow on the", text_probability=0.09) == TIMING.patient_wait_ms
    assert wait_ms("any chance of snow um", text_probability=0.09) == TIMING.patient_wait_ms
    assert wait_ms("any chance of snow on fried.", text_probability=0.0) == TIMING.patient_wait_ms
