"""Whole conversations on a virtual clock, with fake models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agent.tools.protocol import Announcement
from tests.voice.session_harness import SessionHarness, response_texts, run_session
from voice import endpointing, events
from voice.history import Item, new_id
from voice.playback import SessionSettings
from voice.response_request import RequestError, ResponseRequest
from voice.timing import Timing
from voice.turn_machine import TurnRules


def test_a_spoken_question_gets_a_spoken_response() -> None:
    harness = run_session(lambda harness: harness.ask_question(3.0))
    ignored = events.PhaseChanged | events.ResponseDraft
    order = [type(event).__name__ for _, event in harness.log if not isinstance(event, ignored)]
    assert list(dict.fromkeys(order)) == [
        "SpeechStarted", "PartialTranscript", "SpeechStopped", "InputCommitted", "FinalTranscript",
        "ResponseStarted", "ResponseItemStarted", "ResponseText", "ResponseTimes", "ResponseAudio", "ResponseDone",
    ]  # fmt: skip
    assert "".join(e.text for e in harness.events_of(events.ResponseText)) == "The capital of France is Paris."
    assert sum(len(e.samples) for e in harness.events_of(events.ResponseAudio)) == 6 * 2400
    (done,) = harness.events_of(events.ResponseDone)
    assert (done.status, done.reason) == ("completed", None)
    phases = [e.phase for e in harness.events_of(events.PhaseChanged)]
    assert phases == ["user_speaking", "thinking", "answering", "listening"]


def test_the_metrics_measure_the_elapsed_time() -> None:
    harness = run_session(lambda harness: harness.ask_question(3.0))
    (done,) = harness.events_of(events.ResponseDone)
    stages = done.metrics.stages_ms()
    waited = stages.pop("end_of_turn")
    assert waited == pytest.approx(Timing.shortest_wait_ms, abs=40)
    assert stages["soft_end"] == pytest.approx(Timing.soft_end_ms, abs=40)
    assert stages["first_token"] == pytest.approx(20, abs=1)
    assert stages["first_clause"] == pytest.approx(80, abs=1)  # the fifth word shows that the fourth is complete
    assert done.metrics.latency_ms() == pytest.approx(sum(stages.values()), abs=0.5)
    assert done.metrics.latency_ms() == pytest.approx(waited, abs=1)  # all the work was done within the wait
    assert (done.metrics.speculations, done.metrics.speculation_used) == (1, True)
    assert (done.metrics.steps, done.metrics.tokens, done.metrics.cached_tokens) == (6, 6, 20)


def test_the_silence_that_ends_a_turn_is_not_transcribed() -> None:
    harness = run_session(lambda harness: harness.ask_question())
    assert harness.recognizer.transcribed_s[-1] == pytest.approx(1.1, abs=0.07)


@pytest.mark.parametrize("rate", [8_000, 24_000, 48_000])
def test_audio_may_arrive_at_any_supported_rate(rate: int) -> None:
    async def scenario(harness: SessionHarness) -> None:
        await harness.hear(1.0, 0.5, rate)
        await harness.hear(2.0, 0.0, rate)

    harness = run_session(scenario)
    assert harness.recognizer.transcribed_s[-1] == pytest.approx(1.1, abs=0.07)
    assert len(harness.events_of(events.ResponseDone)) == 1


def test_a_user_who_continues_after_a_pause_gets_one_response_to_both_parts() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.seconds_per_word = 0.5
        await harness.hear(1.0, 0.5)
        await harness.hear(0.8, 0.0)
        await harness.hear(1.0, 0.5)
        await harness.hear(6.0, 0.0)

    harness = run_session(scenario)
    first, second = harness.events_of(events.ResponseDone)
    assert (first.status, second.status) == ("cancelled", "completed")
    assert not [e for e in harness.events_of(events.ResponseAudio) if e.response_id == first.response_id]
    question = "What is the capital of France?"
    asked = [(m.role, m.content) for m in harness.language_model.prompts[-1]]
    assert asked[1:] == [("user", f"{question} {question}")]  # one sentence, as it may be
    assert len(harness.session.history.items) == 3  # but two messages of the client's conversation


def test_sound_without_words_gets_no_response() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.recognizer.text = ""
        await harness.ask_question()

    harness = run_session(scenario)
    assert [e.text for e in harness.events_of(events.FinalTranscript)] == [""]
    assert not harness.events_of(events.ResponseStarted)
    assert harness.session.state.phase == "listening"


def test_push_to_talk_needs_no_silence() -> None:
    async def scenario(harness: SessionHarness) -> None:
        await harness.hear(1.0, 0.5)
        harness.session.commit()
        harness.session.respond()
        await asyncio.sleep(2)

    harness = run_session(scenario, SessionSettings(detect_turns=False))
    assert not harness.events_of(events.SpeechStarted)
    (done,) = harness.events_of(events.ResponseDone)
    assert done.status == "completed"
    assert harness.recognizer.transcribed_s == [1.0]
    assert [m.role for m in harness.language_model.prompts[0]] == ["system", "user"]


def test_too_little_audio_cannot_be_committed() -> None:
    async def scenario(harness: SessionHarness) -> None:
        await harness.hear(0.06, 0.5)
        with pytest.raises(RequestError, match="holds 60 ms of audio, at least 100 ms are needed") as raised:
            harness.session.commit()
        assert raised.value.code == "input_audio_buffer_commit_empty"
        harness.session.clear()
        with pytest.raises(RequestError, match="holds 0 ms"):
            harness.session.commit()

    run_session(scenario, SessionSettings(detect_turns=False))


def test_uncommitted_audio_is_bounded() -> None:
    rules = TurnRules(Timing(max_turn_ms=2000))

    async def scenario(harness: SessionHarness) -> None:
        with pytest.raises(RequestError, match="at most 2 s: commit or clear") as raised:
            await harness.hear(5.0, 0.5)
        assert raised.value.code == "input_audio_buffer_full"

    run_session(scenario, SessionSettings(detect_turns=False, rules=rules))


def test_an_hour_of_silence_buffers_no_more_audio_than_a_few_seconds() -> None:
    async def scenario(harness: SessionHarness) -> None:
        for _ in range(3600):
            harness.session.append(np.zeros(16_000, np.float32), 16_000)
        assert harness.session._input.buffered_ms < 4000

    run_session(scenario)


def test_only_one_response_is_active_at_a_time() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.session.history.add(Item("q", "user", "Hello", spoken=False))
        harness.session.respond()
        with pytest.raises(RequestError, match="still in progress"):
            harness.session.respond()
        with pytest.raises(RequestError, match="no such response"):
            harness.session.cancel("resp_other")
        harness.session.cancel()
        with pytest.raises(RequestError, match="no such response"):
            harness.session.cancel()
        harness.session.respond()
        await asyncio.sleep(3)

    harness = run_session(scenario)
    assert [e.status for e in harness.events_of(events.ResponseDone)] == ["cancelled", "completed"]


def test_a_failed_transcription_is_reported_and_the_next_turn_works() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.recognizer.failing = True
        await harness.ask_question()
        harness.recognizer.failing = False
        await harness.ask_question(3.0)

    harness = run_session(scenario)
    assert [e.reason for e in harness.events_of(events.TranscriptionFailed)] == [
        "the turn could not be transcribed: the recognizer broke"
    ]
    assert [e.status for e in harness.events_of(events.ResponseDone)] == ["failed", "completed"]


def test_new_instructions_are_prefilled_at_once() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.session.configure(SessionSettings(instructions="Be brief."))

    harness = run_session(scenario)
    assert [prepared[0].content for prepared in harness.language_model.prepared][-1] == "Be brief."


def test_the_recognizer_listens_for_names_of_the_conversation() -> None:
    settings = SessionSettings(instructions="You answer for Gudrun Vik.")
    harness = run_session(lambda harness: harness.ask_question(3.0), settings)
    assert harness.recognizer.names == ["Gudrun"]


def test_closing_during_a_response_leaves_no_task_running() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.seconds_per_word = 10
        await harness.ask_question()
        await harness.session.close()
        assert not harness.session._tasks._tasks

    run_session(scenario)


def test_cancelling_a_response_during_transcription_keeps_the_transcript() -> None:
    async def scenario(harness: SessionHarness) -> None:
        transcription_allowed: asyncio.Future[None] = harness.loop.create_future()
        run_in_executor = harness.loop.run_in_executor

        async def delay_transcription(executor: object, function: Any, *arguments: Any) -> Any:
            if getattr(function, "__name__", "") == "final":
                await transcription_allowed
            return await run_in_executor(executor, function, *arguments)  # type: ignore[arg-type]

        harness.loop.run_in_executor = delay_transcription  # type: ignore[assignment]
        await harness.hear(1.0, 0.5)
        harness.session.commit()
        harness.session.respond()
        await asyncio.sleep(0.05)
        harness.session.cancel()
        transcription_allowed.set_result(None)
        await asyncio.sleep(0.05)

    harness = run_session(scenario, SessionSettings(detect_turns=False))
    assert [e.text for e in harness.events_of(events.FinalTranscript)] == ["What is the capital of France?"]
    assert harness.session.history.items[0].text == "What is the capital of France?"


def test_the_audio_clock_stays_correct_after_push_to_talk() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.session.configure(SessionSettings(detect_turns=False))
        await harness.hear(5.0, 0.0)
        harness.session.configure(SessionSettings())
        await harness.ask_question(3.0)

    harness = run_session(scenario)
    assert harness.events_of(events.SpeechStarted)[0].audio_start_ms == pytest.approx(4700, abs=40)
    assert harness.events_of(events.SpeechStopped)[0].audio_end_ms == pytest.approx(6000, abs=40)
    assert harness.recognizer.transcribed_s[-1] == pytest.approx(1.4, abs=0.07)


def test_speech_right_after_the_end_of_a_turn_is_transcribed_completely() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.seconds_per_word = 5
        await harness.hear(1.0, 0.5)
        await harness.hear(0.6, 0.0)
        # One large block, as some clients send: the rest of the silence, then speech.
        block = np.concatenate((np.zeros(2400), np.full(1600, 0.5))).astype(np.float32)
        harness.session.append(block, 16_000)
        await harness.hear(1.0, 0.5)
        await harness.hear(1.0, 0.0)

    harness = run_session(scenario)
    assert len(harness.events_of(events.FinalTranscript)) == 2
    assert harness.recognizer.transcribed_s[-1] >= 1.1 + 0.3 + 0.1 - 0.07  # the speech, its prefix and its tail


def test_turns_faster_than_their_transcription_are_refused() -> None:
    async def scenario(harness: SessionHarness) -> None:
        never: asyncio.Future[None] = harness.loop.create_future()
        harness.loop.run_in_executor = lambda *_: never  # type: ignore[assignment, method-assign, return-value]
        for _ in range(4):
            await harness.hear(0.2, 0.5)
            harness.session.commit()
        await harness.hear(0.2, 0.5)
        with pytest.raises(RequestError, match="4 turns still wait to be transcribed"):
            harness.session.commit()

    run_session(scenario, SessionSettings(detect_turns=False))


@pytest.mark.parametrize(("pause_s", "expected_ms"), [(1.2, 1200), (3.0, 3000)])
def test_a_turn_over_a_response_says_how_long_after_the_users_last_words_it_began(
    pause_s: float, expected_ms: int
) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.words = [f" word{n}" for n in range(60)]  # 6 s of speech
        await harness.ask_question(pause_s)
        await harness.ask_question(8.0)
        await harness.ask_question(8.0)  # after the response

    metrics = [done.metrics.spoken_over_after_ms for done in run_session(scenario).events_of(events.ResponseDone)]
    assert metrics == [None, pytest.approx(expected_ms, abs=100), None]


# What arrives while something else is pending.


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
    first, second = harness.events_of(events.FinalTranscript)
    assert users_words(harness) == [f"{first.text} {second.text}"]


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


@pytest.mark.parametrize(("break_s", "together"), [(0.25, True), (3.0, False)])
def test_what_the_user_says_as_the_response_begins_goes_on_with_the_turn(break_s: float, together: bool) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.words, harness.language_model.seconds_per_word = [f" word{n}" for n in range(90)], 0.0
        await harness.hear(1.0, 0.5)
        while not harness.events_of(events.ResponseAudio):
            await harness.hear(0.02, 0.0)
        await harness.hear(break_s - 0.2, 0.0)
        harness.recognizer.text = "And of Spain?"
        await harness.ask_question(4.0)

    words = users_words(run_session(scenario))
    question = "What is the capital of France?"
    assert words == ([f"{question} And of Spain?"] if together else [question, "And of Spain?"])


def test_the_form_of_the_newest_part_decides_how_long_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    forms, words = list[str](), list[str]()
    predict = endpointing.predict_endpoint

    def predicted(text: str, *args: Any, **options: Any) -> endpointing.EndpointPrediction:
        forms.append(text)
        return predict(text, *args, **options)

    async def scenario(harness: SessionHarness) -> None:
        async def completion(text: str) -> float:
            words.append(text)
            return 0.9

        harness.language_model.turn_completion = completion  # type: ignore[method-assign]
        harness.language_model.seconds_per_word = 0.5
        await harness.hear(1.0, 0.5)
        await harness.hear(0.8, 0.0)
        harness.recognizer.text = "It's 415."
        await harness.ask_question(6.0)

    monkeypatch.setattr(endpointing, "predict_endpoint", predicted)
    run_session(scenario)
    assert forms[-1] == "It's 415." and words[-1] == "What is the capital of France? It's 415."
