"""How likely a turn is over, and what that is worth waiting for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice import prosody
from voice.audio import HEARING_RATE, Samples
from voice.endpoint import Pauses, dictates, is_aside, judge
from voice.timing import Timing

TIMING = Timing()


@pytest.mark.parametrize(
    "text",
    ["What time is it?", "Where is the station?", "Who are you waiting for?", "What is it like?", "Did it go well?"],
)
def test_a_short_question_is_over_at_once(text: str) -> None:
    assert judge(text, TIMING).wait_ms < 350


@pytest.mark.parametrize(
    "text",
    [
        "I went to the",
        "Tell me about um",
        "And then,",
        "I think that we should...",
        "Because it was raining",
        "Before we begin.",
        "I was, like",
        "Well...",
        "Let me see.",
    ],
)
def test_words_that_lean_on_more_are_waited_for(text: str) -> None:
    assert judge(text, TIMING).wait_ms >= TIMING.longest_wait_ms * 0.9


def test_the_models_sense_of_a_whole_sentence_moves_the_wait() -> None:
    waits = [judge("The weather in London", TIMING, words=p).wait_ms for p in (0.02, 0.3, 0.5, 0.7, 0.98)]
    assert waits == sorted(waits, reverse=True)
    assert waits[-1] == TIMING.shortest_wait_ms and waits[0] == TIMING.patient_wait_ms


def test_the_sound_counts_too() -> None:
    assert judge("Turn it off.", TIMING, sound=0.95).wait_ms < judge("Turn it off.", TIMING, sound=0.05).wait_ms


@pytest.mark.parametrize(
    ("text", "dictated"),
    [
        ("My number is five five five", True),
        ("0 7 7 3", True),
        ("It's spelled R E J", True),
        ("You can call me at 415", True),
        ("The code is 4 4 1 9 2 0 5 5 1 2", False),  # as long as numbers get
        ("What is two plus two", False),
        ("What is 15 times 3?", False),
        ("I have two", False),
        ("I was born in 1984", False),
        ("Tell me a joke", False),
    ],
)
def test_a_number_being_dictated_is_waited_for(text: str, dictated: bool) -> None:
    assert dictates(text) is dictated
    if dictated:
        assert judge(text, TIMING, words=0.9).wait_ms == TIMING.dictation_wait_ms


def test_somebody_who_paused_before_gets_longer_unless_they_surely_have_finished() -> None:
    pauses = Pauses()
    before = judge("I would like some tea", TIMING, words=0.6, pauses=pauses).wait_ms
    pauses.note(800)
    after = judge("I would like some tea", TIMING, words=0.6, pauses=pauses).wait_ms
    assert before < after <= TIMING.patient_wait_ms
    assert judge("What time is it?", TIMING, words=0.95, pauses=pauses).wait_ms == TIMING.shortest_wait_ms
    pauses.begin()
    assert judge("I would like some tea", TIMING, words=0.6, pauses=pauses).wait_ms == before


def test_the_usual_pauses_of_a_speaker_are_waited_for_in_later_turns() -> None:
    pauses = Pauses()
    unsure = "I would like some tea"
    before = judge(unsure, TIMING, words=0.6, pauses=pauses).wait_ms
    for length in (140, 600, 160, 560):  # the short ones end no turn
        pauses.note(length)
    pauses.begin()
    assert judge(unsure, TIMING, words=0.6, pauses=pauses).wait_ms == 580 > before
    assert judge("What time is it?", TIMING, words=0.95, pauses=pauses).wait_ms == TIMING.shortest_wait_ms
    for _ in range(6):
        pauses.note(150)
    pauses.begin()
    assert judge(unsure, TIMING, words=0.6, pauses=pauses).wait_ms == before  # they have been forgotten


def test_somebody_who_dictates_and_makes_long_pauses_gets_the_longer_of_both() -> None:
    pauses = Pauses()
    pauses.note(900)
    assert judge("My number is five five five", TIMING, words=0.5, pauses=pauses).wait_ms > TIMING.dictation_wait_ms
    patient = Timing(longest_wait_ms=1200, patient_wait_ms=1400)
    assert judge("My number is five five five", patient, words=0.2).wait_ms > patient.dictation_wait_ms


@pytest.mark.parametrize("text", ["I am doing well.", "That is what it looks like."])
def test_words_that_also_end_sentences_are_no_hesitation(text: str) -> None:
    assert judge(text, TIMING, words=0.95).wait_ms < 350


def test_a_mere_phrase_is_waited_for_unless_it_answers_a_question() -> None:
    phrase = "In the middle of June"
    assert judge(phrase, TIMING, words=0.9).wait_ms > 600
    assert judge(phrase, TIMING, words=0.9, asked=True).wait_ms < 350
    assert judge("If it rains", TIMING, words=0.8).wait_ms == TIMING.patient_wait_ms
    whole = "When I was young we lived in a small house by the sea"
    assert judge(whole, TIMING, words=0.97).wait_ms < 400


@given(st.text(max_size=80), st.none() | st.floats(0, 1), st.none() | st.floats(0, 1))
def test_every_wait_is_within_its_bounds(text: str, words: float | None, sound: float | None) -> None:
    verdict = judge(text, TIMING, words=words, sound=sound)
    assert TIMING.shortest_wait_ms <= verdict.wait_ms <= TIMING.patient_wait_ms
    assert 0 <= verdict.over <= 1


@pytest.mark.parametrize(
    ("text", "aside"),
    [("Mhm.", True), ("Yeah, yeah.", True), ("Oh, I see.", True), ("Right", True), ("", True),
     ("Stop", False), ("No.", False), ("Right, but what about cats?", False), ("Yes I would", False)],
)  # fmt: skip
def test_what_people_say_while_they_listen(text: str, aside: bool) -> None:
    assert is_aside(text) is aside


def voice(pitch_hz: list[float], loudness: list[float]) -> Samples:
    """A hum of 200 ms at each pitch and loudness."""
    count = HEARING_RATE // 5
    hertz, level = np.repeat(pitch_hz, count), np.repeat(loudness, count)
    phase = 2 * np.pi * np.cumsum(hertz) / HEARING_RATE
    return (level * sum(np.sin(n * phase) / n for n in range(1, 8))).astype(np.float32)


def test_pitch_is_found() -> None:
    for hertz in (80, 120, 210, 330):
        pitch, _ = prosody.contour(voice([hertz] * 5, [0.2] * 5))
        assert np.median(pitch[pitch > 0]) == pytest.approx(hertz, rel=0.03)
    pitch, _ = prosody.contour(np.random.default_rng(0).standard_normal(HEARING_RATE).astype(np.float32))
    assert np.count_nonzero(pitch) < 0.1 * len(pitch)


def test_a_voice_that_falls_and_softens_has_more_likely_finished_than_one_that_stays_level() -> None:
    fall = prosody.Melody().ends(voice([140, 140, 135, 130, 120, 110, 95, 85], [0.3] * 6 + [0.1, 0.04]))
    level = prosody.Melody().ends(voice([140] * 8, [0.3] * 8))
    assert fall is not None and level is not None and fall > level
    assert prosody.Melody().ends(np.zeros(HEARING_RATE, np.float32)) is None
    assert prosody.Melody().ends(np.zeros(10, np.float32)) is None
