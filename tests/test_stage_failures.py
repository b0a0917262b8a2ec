"""Every stage fails once: only the turn in progress suffers, the user hears of it, and the next turn works."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from tests.fakes import LoudnessDetector, VirtualLoop
from tests.server.realtime.conversation_client import Client, hold_conversation
from tests.voice.session_harness import SessionHarness, response_texts, run_session
from voice import events, session
from voice.audio.codec import OUTPUT_RATE
from voice.chunks import Chunk
from voice.session import VoiceSession
from voice.speech_times import Speech

APOLOGY = Chunk("Sorry, something went wrong.", Speech(np.full(OUTPUT_RATE // 2, 0.25, np.float32)))

ERRORS = [RuntimeError("it broke"), MemoryError(), OSError("out of memory")]


class TurnDetector:
    """Has no opinion."""

    def turn_completion(self, audio: object) -> float | None:
        return None


class Stages:
    """The stages of a session, which can be broken."""

    def __init__(self, harness: SessionHarness, apology: Chunk = APOLOGY) -> None:
        self.detector = TurnDetector()
        judge = lambda audio: self.detector.turn_completion(audio)  # noqa: E731  # looks it up at every call
        models = replace(harness.session._speech_models, turn_detector=judge, apology=apology)
        harness.session = VoiceSession(harness.language_model, models, harness.record, clock=harness.loop.time)
        self.owners: dict[str, tuple[Any, str]] = {
            "recognition": (harness.recognizer, "transcribe"),
            "language model": (harness.language_model, "reply"),
            "turn completion": (harness.language_model, "turn_completion"),
            "synthesis": (harness.voice, "synthesize"),
            "turn detector": (self.detector, "turn_completion"),
        }

    def break_stage(self, stage: str, error: Exception) -> None:
        """Let calls of a stage raise an error."""

        def raises(*_: Any, **__: Any) -> Any:
            raise type(error)(*error.args)  # a new one, whose traceback keeps no earlier conversation alive

        setattr(*self.owners[stage], raises)

    def repair(self, stage: str) -> None:
        """Undo `break_stage`."""
        delattr(*self.owners[stage])


@pytest.fixture(scope="module", autouse=True)
def _no_exception_is_left_in_a_task() -> Iterator[None]:
    """asyncio reports it when such a task is deleted, which takes a second, so once for all tests."""
    reported: list[str] = []

    def report(loop: VirtualLoop, context: dict[str, Any]) -> None:
        reported.append(f"{context['message']}: {context.get('exception')!r}")

    with patch.object(VirtualLoop, "call_exception_handler", report):
        yield
        gc.collect()
    assert reported == []


@pytest.fixture(autouse=True)
def _detect_speech_by_loudness() -> Iterator[None]:
    with patch.object(session, "SpeechDetector", LoudnessDetector):
        yield


def fail_one_turn(stage: str, error: Exception) -> SessionHarness:
    """Three turns, of which the second meets a broken stage."""

    async def scenario(harness: SessionHarness) -> None:
        stages = Stages(harness)
        await harness.ask_question(3.0)
        stages.break_stage(stage, error)
        await harness.ask_question(3.0)
        stages.repair(stage)
        await harness.ask_question(3.0)

    return run_session(scenario)


def statuses(harness: SessionHarness) -> list[str]:
    return [event.status for event in harness.events_of(events.ResponseDone)]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("stage", ["language model", "synthesis"])
def test_a_response_that_fails_is_apologized_for_with_a_recording(stage: str, error: Exception) -> None:
    harness = fail_one_turn(stage, error)
    assert statuses(harness) == ["completed", "failed", "completed"]
    assert response_texts(harness)[1] == APOLOGY.text
    played = [
        event.samples
        for event in harness.events_of(events.ResponseAudio)
        if event.samples[0] == APOLOGY.speech.audio[0]
    ]
    assert sum(map(len, played)) == len(APOLOGY.speech.audio)


def test_a_cough_over_the_apology_does_not_repeat_it() -> None:
    noise = np.random.default_rng(0).uniform(-0.25, 0.25, OUTPUT_RATE // 2).astype(np.float32)

    async def scenario(harness: SessionHarness) -> None:
        Stages(harness, replace(APOLOGY, speech=Speech(noise))).break_stage("language model", ERRORS[0])
        await harness.hear(1.0, 0.5)
        while not harness.events_of(events.ResponseAudio):
            await harness.hear(0.02, 0.0)
        harness.recognizer.text = ""
        await harness.hear(0.3, 0.5)  # unlike the noise, so it is no echo
        await harness.hear(3.0, 0.0)

    harness = run_session(scenario)
    assert len(harness.events_of(events.SpeechStarted)) == 2
    samples = sum(len(event.samples) for event in harness.events_of(events.ResponseAudio))
    assert len(noise) < samples <= 2 * len(noise)  # once, and then what was not heard of it


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("stage", ["turn detector", "turn completion"])
def test_a_turn_ends_as_soon_without_the_models_that_judge_whether_it_is_over(
    stage: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    harness = fail_one_turn(stage, error)
    assert statuses(harness) == ["completed"] * 3
    waited = {event.metrics.waited_ms for event in harness.events_of(events.ResponseDone)}
    assert len(waited) == 1  # the fakes have no opinion either when they work
    assert any("failed; " in record.message and record.exc_info for record in caplog.records)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_turn_that_cannot_be_transcribed_is_reported_and_apologized_for(error: Exception) -> None:
    harness = fail_one_turn("recognition", error)
    assert statuses(harness) == ["completed", "failed", "completed"]
    assert len(harness.events_of(events.TranscriptionFailed)) == 1
    assert response_texts(harness)[1] == APOLOGY.text


def test_a_failed_response_is_reported_in_an_error_event() -> None:
    async def scenario(client: Client) -> None:
        client.language_model.failing = True
        await client.send("response.create")
        await client.speak(1.0, 0.0)

    client = hold_conversation(scenario)
    assert client.last("response.done")["response"]["status"] == "failed"
    error = client.last("error")["error"]
    assert (error["type"], error["code"]) == ("server_error", "response_failed")


def test_voice_detection_that_fails_produces_error_events_and_the_conversation_continues() -> None:
    async def scenario(client: Client) -> None:
        detector = client.conversation.session._detector
        with patch.object(detector, "push", side_effect=RuntimeError("it broke")):
            await client.speak(0.1, 0.5)
        await client.send("response.create")
        await client.speak(1.0, 0.0)

    client = hold_conversation(scenario)
    codes = {event["error"]["code"] for event in client.events if event["type"] == "error"}
    assert codes == {"internal_error"}
    assert client.last("response.done")["response"]["status"] == "completed"
