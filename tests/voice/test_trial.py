"""A trial asks its recorded questions, with fake models in real time."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from tests.fakes import FakeLanguageModel, fake_speech_models
from voice import trial
from voice.audio.codec import RECOGNITION_RATE
from voice.trial import Latencies, TrialFailed, TrialInterrupted, measure_latencies


async def test_questions_are_asked_alone_and_then_by_more_and_more_conversations_at_the_same_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trial, "_MOST_TOGETHER", 4)
    loud = np.full(RECOGNITION_RATE, 0.5, np.float32)
    monkeypatch.setattr(trial, "recorded_questions", lambda: [loud])
    made, asked = list[FakeLanguageModel](), list[int]()

    def new_language_model() -> FakeLanguageModel:
        made.append(FakeLanguageModel(seconds_per_word=0.001))
        return made[-1]

    latencies = await measure_latencies(
        new_language_model, fake_speech_models(), limit_ms=3000, target_ms=3000, on_progress=asked.append
    )
    assert len(latencies.alone) == 3  # the first of four is discarded
    assert set(latencies.together) == {2, 4}
    assert asked == [0, 1, 2, 3, 4, 6]
    assert len(made) == 10
    assert 100 < latencies.median < 2000
    assert latencies.conversations(3000) == 4


async def test_a_language_model_that_is_too_slow_is_given_up_after_two_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trial, "_LONGEST_S", 1.0)
    latencies = await measure_latencies(
        lambda: FakeLanguageModel(seconds_per_word=2), fake_speech_models(), limit_ms=800, target_ms=1000
    )
    assert latencies == Latencies((1000, 1000), {})
    assert latencies.conversations(1000) == 1


async def test_a_trial_can_be_interrupted() -> None:
    interrupted = asyncio.Event()
    asyncio.get_running_loop().call_later(0.5, interrupted.set)
    began = asyncio.get_running_loop().time()
    with pytest.raises(TrialInterrupted):
        await measure_latencies(
            FakeLanguageModel, fake_speech_models(), limit_ms=800, target_ms=1000, is_interrupted=interrupted.is_set
        )
    assert asyncio.get_running_loop().time() - began < 2


async def test_a_response_that_fails_is_no_answer() -> None:
    model = FakeLanguageModel()
    model.failing = True
    with pytest.raises(TrialFailed):
        await measure_latencies(lambda: model, fake_speech_models(), limit_ms=800, target_ms=1000)


def test_therecorded_questions_are_bundled_and_loud_up_to_their_last_sample() -> None:
    questions = trial.recorded_questions()
    assert len(questions) == 4
    for question in questions:
        assert 1 < len(question) / RECOGNITION_RATE < 3
        assert np.abs(question[-160:]).max() > 0.005 * np.abs(question).max()
