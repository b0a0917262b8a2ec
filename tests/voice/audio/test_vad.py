"""Voice activity detection with the real Silero network."""

from __future__ import annotations

import numpy as np
import pytest

from voice.audio.codec import RECOGNITION_RATE, Samples
from voice.audio.resampling import resample
from voice.audio.vad import WINDOW_SAMPLES, Silero, SpeechDetector, bundled_silero


@pytest.fixture(scope="module")
def silero() -> Silero:
    return Silero(bundled_silero())


@pytest.mark.parametrize("name", ["silence", "white noise", "hum", "clicks"])
def test_other_sounds_are_not_classified_as_speech(silero: Silero, name: str) -> None:
    rng, count = np.random.default_rng(3), 4 * RECOGNITION_RATE
    sounds = {
        "silence": np.zeros(count),
        "white noise": 0.05 * rng.standard_normal(count),
        "hum": 0.2 * np.sin(2 * np.pi * 50 * np.arange(count) / RECOGNITION_RATE),
        "clicks": 0.8 * (rng.random(count) < 0.0002),
    }
    frames = SpeechDetector(silero).push(sounds[name].astype(np.float32))
    assert sum(frame.probability > 0.5 for frame in frames) <= 2


def test_the_block_size_does_not_change_the_result(silero: Silero) -> None:
    samples = resample((np.random.default_rng(0).standard_normal(16_000) * 0.1).astype(np.float32), 8000, 16_000)
    whole = SpeechDetector(silero).push(samples)
    frames, detector = [], SpeechDetector(silero)
    for start in range(0, len(samples), 37):
        frames += detector.push(samples[start : start + 37])
    assert frames == whole
    assert [(f.start_ms, f.end_ms) for f in whole[:2]] == [(0, 32), (32, 64)]
    assert len(whole) == len(samples) // WINDOW_SAMPLES


def test_the_network_does_not_run_while_the_gate_is_closed(silero: Silero, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = 0
    run = silero.run

    def counted(windows: Samples, state: object) -> object:
        nonlocal runs
        runs += 1
        return run(windows, state)  # type: ignore[arg-type]

    monkeypatch.setattr(silero, "run", counted)
    SpeechDetector(silero).push(np.zeros(10 * RECOGNITION_RATE, np.float32))
    assert runs == 0
