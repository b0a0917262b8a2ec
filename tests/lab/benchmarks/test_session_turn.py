"""The turn that benchmarks take in a session of this process."""

from __future__ import annotations

import numpy as np
import pytest

from lab.benchmarks.session_turn import ask_aloud
from tests.fakes import FakeLanguageModel, LoudnessDetector, fake_speech_models
from voice import session
from voice.audio.codec import OUTPUT_RATE


async def test_the_question_is_asked_and_the_completed_response_comes_with_its_latency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)
    question = np.full(OUTPUT_RATE, 0.5, np.float32)
    response = await ask_aloud(FakeLanguageModel(), fake_speech_models(), question)
    assert response.item.text.strip() == "The capital of France is Paris."
    latency = response.metrics.latency_ms()
    assert latency is not None and latency > 0
