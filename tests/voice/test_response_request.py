"""Requests for responses wait for the user, survive noise, and are never forgotten."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.voice.session_harness import SessionHarness, response_texts, run_session
from voice import events
from voice.history import Item
from voice.playback import SessionSettings
from voice.response_request import ResponseRequest

GREETING = ResponseRequest(replace(SessionSettings(), instructions="Greet the caller."), tag="greeting")


def tags(harness: SessionHarness) -> list[object]:
    return [event.tag for event in harness.events_of(events.ResponseStarted)]


@pytest.mark.parametrize(("heard", "expected"), [("", ["greeting", "greeting"]), ("Hello?", ["greeting", None])])
def test_a_noise_before_the_first_sound_repeats_the_request_and_words_are_answered(
    heard: str, expected: list[object]
) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.recognizer.text = heard
        harness.language_model.seconds_per_word = 0.5
        harness.session.respond(GREETING)
        await harness.hear(0.3, 0.5)
        await harness.hear(8.0, 0.0)

    harness = run_session(scenario)
    assert tags(harness) == expected
    assert harness.events_of(events.ResponseDone)[-1].status == "completed"
    assert ("Greet the caller." in harness.language_model.prompts[-1][0].content) == (not heard)


@pytest.mark.parametrize("ending", ["commit", "no turn detection", "no automatic response"])
def test_a_request_that_waits_for_the_user_is_carried_out(ending: str) -> None:
    async def scenario(harness: SessionHarness) -> None:
        session = harness.session
        await harness.hear(1.0, 0.5)
        session.respond(GREETING)
        rules = replace(session.settings.rules, create_response=False)
        if ending == "commit":
            session.commit()
        elif ending == "no turn detection":
            session.configure(replace(session.settings, detect_turns=False))
        else:
            session.configure(replace(session.settings, rules=rules))
        await harness.hear(5.0, 0.0)
        session.respond(replace(GREETING, tag="later"))
        await harness.hear(3.0, 0.0)

    assert tags(run_session(scenario)) == ["greeting", "later"]


def test_a_request_of_a_client_that_has_gone_is_dropped() -> None:
    async def scenario(harness: SessionHarness) -> None:
        await harness.hear(1.0, 0.5)
        harness.session.respond(GREETING)
        harness.session.interrupt()
        await harness.hear(1.0, 0.0)
        harness.session.resume()
        harness.session.respond(replace(GREETING, tag="later"))
        await harness.hear(3.0, 0.0)

    assert tags(run_session(scenario)) == ["later"]


def test_a_written_response_goes_on_after_a_noise() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.words = [f" word{n}" for n in range(20)]
        harness.language_model.seconds_per_word = 0.1
        harness.session.history.add(Item("item_1", "user", "What is the capital of France?", complete=True))
        harness.session.respond()
        await harness.hear(1.0, 0.0)
        harness.recognizer.text = ""
        await harness.hear(0.3, 0.5)
        await harness.hear(4.0, 0.0)

    harness = run_session(scenario, SessionSettings(speak=False))
    assert len(harness.language_model.prompts) == 1
    assert "".join(response_texts(harness)) == "".join(f" word{n}" for n in range(20))


def test_a_response_that_is_paused_can_be_cancelled() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.words = [f" word{n}." for n in range(80)]
        harness.language_model.seconds_per_word = 0.1
        await harness.ask_question(3.0)
        harness.recognizer.text = ""
        await harness.hear(0.3, 0.5)
        harness.session.cancel()
        await harness.hear(3.0, 0.0)

    harness = run_session(scenario)
    assert [done.status for done in harness.events_of(events.ResponseDone)] == ["cancelled"]


def test_only_the_response_to_a_turn_fails_with_its_transcription() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.recognizer.failing = True
        await harness.hear(1.0, 0.5)
        harness.session.commit()
        question = Item("item_1", "user", "How are you?", complete=True)
        other = ResponseRequest(harness.session.settings, (question,), in_conversation=False, tag="other")
        harness.session.respond(other)
        harness.session.respond(GREETING)
        await asyncio.sleep(3)

    harness = run_session(scenario, SessionSettings(detect_turns=False))
    ids = {event.response_id: event.tag for event in harness.events_of(events.ResponseStarted)}
    ended = {ids[done.response_id]: done.status for done in harness.events_of(events.ResponseDone)}
    assert ended == {"other": "completed", "greeting": "failed"}
