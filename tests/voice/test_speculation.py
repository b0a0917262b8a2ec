"""Speculative responses: when they start, when they are released and when they are discarded."""

from __future__ import annotations

import pytest

from tests.voice.session_harness import SessionHarness, response_texts, run_session
from voice import events
from voice.asr import FINAL_WINDOW, INTERIM_WINDOW
from voice.playback import SessionSettings
from voice.timing import Timing
from voice.turn_machine import TurnRules


def test_a_turn_that_is_certainly_over_is_answered_after_the_shortest_wait() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.completion, harness.recognizer.text = 0.99, "Turn on the light"
        await harness.ask_question(3.0)

    harness = run_session(scenario)
    (done,) = harness.events_of(events.ResponseDone)
    assert done.metrics.latency_ms() == pytest.approx(Timing.shortest_wait_ms, abs=40)
    assert done.metrics.speculation_used
    assert done.metrics.end_probability is not None and done.metrics.end_probability > 0.9


def test_a_turn_that_is_certainly_not_over_gets_the_patient_wait() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.recognizer.text = "I would like to go to the"
        await harness.ask_question(3.0)

    harness = run_session(scenario)
    (done,) = harness.events_of(events.ResponseDone)
    assert done.metrics.waited_ms == pytest.approx(Timing.patient_wait_ms, abs=40)


def test_a_speculative_response_is_neither_heard_nor_remembered_before_the_turn_ends() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.completion, harness.recognizer.text = 0.01, "Turn on the light"
        await harness.ask_question(0.6)  # the response has long been generated
        prompts = harness.language_model.prompts
        assert prompts and prompts[0][-1].content == harness.recognizer.text
        assert not harness.session.history.items
        kinds = {type(e) for _, e in harness.log}
        assert kinds == {events.SpeechStarted, events.PhaseChanged, events.PartialTranscript}
        await harness.hear(2.0, 0.0)

    harness = run_session(scenario)
    assert response_texts(harness) == ["The capital of France is Paris."]
    assert len(harness.language_model.prompts) == 1


@pytest.mark.parametrize(("seconds_per_word", "turns"), [(0.02, 2), (0.15, 1)])
def test_a_user_who_continues_before_the_response_is_ready_stays_in_the_same_turn(
    seconds_per_word: float, turns: int
) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.seconds_per_word, harness.language_model.completion = seconds_per_word, 0.98
        await harness.hear(1.0, 0.5)
        await harness.hear(0.45, 0.0)
        await harness.hear(1.0, 0.5)
        await harness.hear(3.0, 0.0)

    harness = run_session(scenario)
    assert len(harness.events_of(events.InputCommitted)) == turns
    assert len(harness.events_of(events.ResponseStarted)) == turns


def test_speech_cancels_the_speculation_and_the_next_one_has_the_whole_text() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.seconds_per_word = 0.3
        harness.recognizer.text = "I would like um"
        await harness.hear(1.0, 0.5)
        await harness.hear(0.5, 0.0)
        harness.recognizer.text = "I would like some tea."
        await harness.hear(1.0, 0.5)
        await harness.hear(5.0, 0.0)

    harness = run_session(scenario)
    last_messages = [prompt[-1].content for prompt in harness.language_model.prompts]
    assert last_messages == ["I would like um", "I would like some tea."]
    assert len(harness.events_of(events.ResponseStarted)) == 1
    assert [item.text for item in harness.session.history.items if item.role == "user"] == ["I would like some tea."]
    (done,) = harness.events_of(events.ResponseDone)
    assert done.metrics.speculations == 2


def test_a_language_model_that_fails_during_speculation_fails_the_response() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.failing = True
        await harness.ask_question(3.0)

    harness = run_session(scenario)
    assert [(e.status, e.reason) for e in harness.events_of(events.ResponseDone)] == [
        ("failed", "the language model broke")
    ]


def test_the_early_transcription_becomes_the_final_transcript() -> None:
    harness = run_session(lambda harness: harness.ask_question(3.0))
    assert [e.text for e in harness.events_of(events.FinalTranscript)] == [harness.recognizer.text]
    assert harness.recognizer.windows[-1] == FINAL_WINDOW and set(harness.recognizer.windows[:-1]) == {INTERIM_WINDOW}
    assert harness.recognizer.transcribed_s[-1] == pytest.approx(1.0 + 0.064, abs=0.05)


def test_stable_words_are_prefilled_while_the_user_speaks() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.recognizer.text = "one two three four five six seven eight nine"
        await harness.ask_question(3.0)

    harness = run_session(scenario)
    assert [p[-1].content for p in harness.language_model.prepared if p[-1].role == "user"] == [harness.recognizer.text]


def test_with_silence_only_the_silence_alone_ends_the_turn() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.completion = 0.99
        await harness.ask_question(3.0)

    rules = TurnRules(Timing(end_silence_ms=900), silence_only=True)
    (done,) = run_session(scenario, SessionSettings(rules=rules)).events_of(events.ResponseDone)
    assert done.metrics.latency_ms() == pytest.approx(900, abs=40)
