"""Interruptions of a response: what pauses, resumes and stops it, and what the history keeps."""

from __future__ import annotations

import pytest

from chat.types import Message
from tests.voice.session_harness import SessionHarness, run_session
from voice import events

LONG = ["Here", " are", " many", " words", " that", " take", " a", " while", *[" to"] * 20, " say", " aloud."]


def test_an_interruption_stops_the_response_and_the_history_keeps_what_was_heard() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.words = ["One", " two", " three", " four.", *(f" word{n}" for n in range(150))]
        harness.language_model.seconds_per_word = 0.02
        await harness.hear(1.0, 0.5)
        await harness.hear(1.8, 0.0)  # the response starts to play about 1 s into this
        harness.language_model.words = ["Fine."]
        await harness.ask_question(4.0)

    harness = run_session(scenario)
    first, second = harness.events_of(events.ResponseDone)
    assert (first.status, first.reason) == ("cancelled", "turn_detected")
    interrupted = harness.time_of(events.SpeechStarted, 1)
    assert harness.time_of(events.ResponseDone) == interrupted
    assert harness.language_model.cancelled == 2  # by the interruption, and when the conversation closed
    sent_before = [
        time for time, e in harness.log if isinstance(e, events.ResponseAudio) and e.response_id == first.response_id
    ]
    assert max(sent_before) <= interrupted
    heard = first.item.heard_text
    assert heard and first.item.text.startswith(heard) and len(heard) < len(first.item.text)
    assert [m.content for m in harness.language_model.prompts[1] if m.role == "assistant"] == [heard.strip()]
    assert second.status == "completed"


def test_a_response_that_was_sent_completely_is_still_cut_while_it_plays() -> None:
    async def scenario(harness: SessionHarness) -> None:
        rest = "are ten words that take one second to say."
        harness.language_model.words = ["Here", *(f" {word}" for word in rest.split())]
        harness.language_model.seconds_per_word = 0.0
        await harness.hear(1.0, 0.5)
        await harness.hear(0.9, 0.0)
        await harness.ask_question(3.0)

    harness = run_session(scenario)
    assert harness.events_of(events.ResponseDone)[0].status == "completed"
    heard = [m.content for m in harness.language_model.prompts[1] if m.role == "assistant"]
    assert heard and heard[0] != "Here are ten words that take one second to say."


def test_the_client_report_of_what_was_heard_takes_precedence() -> None:
    async def scenario(harness: SessionHarness) -> None:
        await harness.ask_question(3.0)
        harness.session.truncate(harness.events_of(events.ResponseDone)[0].item.id, 410)
        await harness.ask_question(3.0)

    harness = run_session(scenario)
    assert [m.content for m in harness.language_model.prompts[1] if m.role == "assistant"] == ["The capital of France"]


async def interrupt(harness: SessionHarness, text: str, voiced_s: float = 0.3, silence_s: float = 4.0) -> None:
    """A long response, and `text` spoken over it."""
    harness.language_model.words, harness.language_model.seconds_per_word = LONG, 0.0
    await harness.ask_question(0.6)
    harness.recognizer.text = text
    await harness.hear(voiced_s, 0.5)
    await harness.hear(silence_s, 0.0)


@pytest.mark.parametrize("text", ["Mhm.", "Yeah, right.", ""])
def test_a_backchannel_or_a_cough_pauses_the_response_and_it_resumes(text: str) -> None:
    harness = run_session(lambda harness: interrupt(harness, text))
    first, second = harness.events_of(events.ResponseDone)
    assert (first.status, second.status) == ("completed", "completed")  # all of the first one had been sent
    assert first.item.heard_text and "".join(LONG).startswith(first.item.heard_text)
    assert (first.item.heard_text + second.item.text).replace(" ", "") == "".join(LONG).replace(" ", "")
    assert len(harness.language_model.prompts) == 1  # the text was not generated again
    assert second.metrics.latency_ms() is None  # it answers no turn of its own


@pytest.mark.parametrize("lags", [False, True])
def test_after_a_cough_only_what_was_not_heard_is_resumed(lags: bool) -> None:
    """The cough comes just after the response should have been heard to its end; a player may lag behind that."""

    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.words, harness.language_model.seconds_per_word = LONG, 0.0
        await harness.hear(1.0, 0.5)
        while not harness.events_of(events.ResponseDone) or harness.session.heard_ms():
            await harness.hear(0.02, 0.0)
        harness.recognizer.text = ""
        await harness.hear(0.3, 0.5)
        if lags:
            item = harness.events_of(events.ResponseDone)[0].item
            harness.session.truncate(item.id, item.audio_ms - 300)
        await harness.hear(3.0, 0.0)
        assert harness.session.state.silent

    harness = run_session(scenario)
    assert len(harness.events_of(events.SpeechStarted)) == 2
    texts = [done.item.text for done in harness.events_of(events.ResponseDone)]
    assert texts[0] == "".join(LONG) and (texts[1:] == []) != lags
    assert all(texts)


def test_other_words_stop_the_response_and_get_a_response() -> None:
    harness = run_session(lambda harness: interrupt(harness, "No, tell me about cats."))
    first, _ = harness.events_of(events.ResponseDone)
    assert harness.language_model.prompts[1][-1] == Message("user", "No, tell me about cats.")
    assert harness.language_model.prompts[1][-2].content == first.item.heard_text.strip()


def test_a_yes_at_the_end_of_the_response_is_a_turn() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.words, harness.language_model.seconds_per_word = ["Shall", " I", " go", " on?"], 0.0
        await harness.ask_question(0.5)
        harness.recognizer.text = "Yes."
        await harness.hear(0.3, 0.5)
        await harness.hear(3.0, 0.0)

    harness = run_session(scenario)
    assert harness.language_model.prompts[-1][-1] == Message("user", "Yes.")
    assert len(harness.language_model.prompts) == 2


def test_truncating_a_response_that_was_sent_completely_ends_its_playback() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.words, harness.language_model.seconds_per_word = LONG, 0.0
        await harness.ask_question(0.5)
        harness.session.truncate(harness.events_of(events.ResponseDone)[0].item.id, 300)
        harness.recognizer.text = "Mhm."
        await harness.hear(0.3, 0.5)
        await harness.hear(3.0, 0.0)

    harness = run_session(scenario)
    # Nothing played any more, so this was a turn and not a backchannel.
    assert harness.language_model.prompts[-1][-1] == Message("user", "Mhm.")
