"""What arrives while something else is pending: turns whose transcripts take long, clients that stop or go away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import pytest

from agent.tools.protocol import Announcement
from tests.voice.session_harness import SessionHarness, response_texts, run_session
from voice import events
from voice.history import Item, new_id
from voice.playback import SessionSettings
from voice.response_request import RequestError, ResponseRequest
from voice.timing import Timing
from voice.turn_machine import TurnRules

MANUAL = SessionSettings(rules=TurnRules(Timing(end_silence_ms=200), silence_only=True, create_response=False))
QUICK_END = SessionSettings(rules=TurnRules(Timing(end_silence_ms=200), silence_only=True))
TIMER = "Your timer is up."


class SlowExecutor(Executor):
    """Every piece of work takes as long, on the virtual clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop, self._seconds = loop, seconds

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:  # type: ignore[override]
        future = Future[Any]()
        future.set_running_or_notify_cancel()
        self._loop.call_later(self._seconds, lambda: future.set_result(work(*arguments, **options)))
        return future


def transcribe_in(harness: SessionHarness, seconds: float) -> None:
    session, executor = harness.session, SlowExecutor(harness.loop, seconds)
    models = replace(session._speech_models, recognition_executor=executor)  # type: ignore[arg-type]
    for part in (session._interim, session._transcripts):
        part._context = replace(part._context, speech_models=models)
    session._speech_models = models


async def speak_until_committed(harness: SessionHarness) -> None:
    await harness.hear(1.0, 0.5)
    while not harness.events_of(events.InputCommitted):
        await harness.hear(0.02, 0.0)


def users_words(harness: SessionHarness) -> list[str]:
    return [message.content for message in harness.language_model.prompts[-1] if message.role == "user"]


def test_a_response_requested_before_the_transcript_answers_the_words() -> None:
    async def scenario(harness: SessionHarness) -> None:
        transcribe_in(harness, 0.3)
        await speak_until_committed(harness)
        harness.session.respond(ResponseRequest(harness.session.settings))
        await harness.hear(8.0, 0.0)

    for settings in (MANUAL, QUICK_END):
        harness = run_session(scenario, settings)
        assert users_words(harness) == ["What is the capital of France?"]
        assert len(harness.events_of(events.FinalTranscript)) == 1
        assert [done.status for done in harness.events_of(events.ResponseDone)] == ["completed"]


def test_words_that_are_still_transcribed_when_the_user_goes_on_are_not_lost() -> None:
    async def scenario(harness: SessionHarness) -> None:
        transcribe_in(harness, 0.6)
        await speak_until_committed(harness)
        await harness.hear(0.1, 0.0)
        harness.recognizer.text = "And of Spain?"
        await harness.ask_question(8.0)

    harness = run_session(scenario, QUICK_END)
    assert len(harness.events_of(events.FinalTranscript)) == 2
    assert len(users_words(harness)) == 2


def test_a_commit_right_after_the_end_of_a_turn_is_another_turn() -> None:
    async def scenario(harness: SessionHarness) -> None:
        transcribe_in(harness, 0.6)
        await speak_until_committed(harness)
        await harness.hear(0.2, 0.0)
        harness.session.commit()
        while not harness.events_of(events.FinalTranscript):
            await harness.hear(0.02, 0.0)
        await harness.hear(8.0, 0.0)

    harness = run_session(scenario, QUICK_END)
    said = [event.text for event in harness.events_of(events.FinalTranscript)]
    assert said == ["What is the capital of France?", ""]  # the commit holds silence


def test_a_commit_over_a_paused_response_stops_it() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.words = [f" word{number}" for number in range(100)]
        await harness.ask_question(3.0)
        harness.recognizer.text = "Stop there please"
        await harness.hear(0.4, 0.5)
        harness.session.commit()
        await harness.hear(3.0, 0.0)
        assert harness.session.state.phase == "listening"

    run_session(scenario)


def test_after_a_truncation_the_next_answer_counts_as_heard() -> None:
    async def scenario(harness: SessionHarness) -> None:
        session, model = harness.session, harness.language_model
        model.words, model.seconds_per_word = [f" word{number}" for number in range(200)], 0.001
        for question, words, heard_s in (("A story?", model.words, 2.0), ("The capital?", [" Paris."], 3.0)):
            session.history.add(Item(new_id("item"), "user", question, spoken=False, complete=True))
            model.words = words
            session.respond(ResponseRequest(session.settings))
            await harness.hear(heard_s, 0.0)
            if len(words) > 1:
                session.truncate(harness.events_of(events.ResponseDone)[-1].item.id, 1000 * heard_s)
        harness.recognizer.text = "And of Spain?"
        await harness.ask_question(2.0)
        assert harness.events_of(events.ResponseDone)[1].item.heard_text == " Paris."

    run_session(scenario)


def test_an_announcement_is_heard_once_it_was_played() -> None:
    heard_at: list[float] = []

    async def scenario(harness: SessionHarness) -> None:
        harness.session.announce(Announcement(TIMER, lambda: heard_at.append(harness.loop.time())))
        await harness.hear(0.04, 0.0)
        await harness.hear(0.9, 0.5)  # over it, before a word was heard
        await harness.hear(8.0, 0.0)

    harness = run_session(scenario)
    said = [text.strip() for text in response_texts(harness)]
    assert said.count(TIMER) == 2 and len(heard_at) == 1
    assert heard_at[0] > harness.time_of(events.ResponseDone, -1)


def test_nothing_is_said_while_the_client_is_away() -> None:
    heard: list[None] = []

    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.words = [f" word{number}" for number in range(100)]
        await harness.ask_question(2.0)
        timer = Announcement(TIMER, lambda: heard.append(None))
        harness.session.announce(timer)
        harness.session.interrupt()
        started = len(harness.events_of(events.ResponseStarted))
        await asyncio.sleep(5)
        assert len(harness.events_of(events.ResponseStarted)) == started and not heard
        harness.session.resume()
        harness.session.announce(timer)  # as `Alarms` does for whoever is back
        await harness.hear(5.0, 0.0)

    harness = run_session(scenario)
    assert [text.strip() for text in response_texts(harness)].count(TIMER) == 1 and len(heard) == 1


def test_a_response_that_resumes_is_announced_as_the_first_time() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.words = [f" word{number}" for number in range(100)]
        harness.session.respond(ResponseRequest(harness.session.settings, tag="first"))
        await harness.hear(3.0, 0.0)
        harness.recognizer.text = "Mhm."
        await harness.hear(0.4, 0.5)
        await harness.hear(3.0, 0.0)

    started = run_session(scenario).events_of(events.ResponseStarted)
    assert [event.tag for event in started] == ["first", "first"]


def test_one_response_waits_at_a_time() -> None:
    async def scenario(harness: SessionHarness) -> None:
        await harness.hear(1.0, 0.5)
        harness.session.respond(ResponseRequest(harness.session.settings))
        with pytest.raises(RequestError, match="requested before"):
            harness.session.respond(ResponseRequest(harness.session.settings))
        await harness.hear(4.0, 0.0)

    assert len(run_session(scenario).events_of(events.ResponseDone)) == 1
