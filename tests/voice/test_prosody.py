"""Pitch, and turn completion judged from prosody."""

from __future__ import annotations

import numpy as np
import pytest

from voice.audio.codec import RECOGNITION_RATE, Samples
from voice.prosody import pitch_contour, prosodic_completion


def voice(pitch_hz: list[float], loudness: list[float]) -> Samples:
    """200 ms of a voiced sound at each pitch and loudness."""
    count = RECOGNITION_RATE // 5
    hertz, level = np.repeat(pitch_hz, count), np.repeat(loudness, count)
    phase = 2 * np.pi * np.cumsum(hertz) / RECOGNITION_RATE
    return (level * sum(np.sin(n * phase) / n for n in range(1, 8))).astype(np.float32)


def test_the_pitch_of_a_voice_is_detected_and_noise_has_none() -> None:
    for hertz in (80, 120, 210, 330):
        pitch, _ = pitch_contour(voice([hertz] * 5, [0.2] * 5))
        assert np.median(pitch[pitch > 0]) == pytest.approx(hertz, rel=0.03)
    pitch, _ = pitch_contour(np.random.default_rng(0).standard_normal(RECOGNITION_RATE).astype(np.float32))
    assert np.count_nonzero(pitch) < 0.1 * len(pitch)


def test_a_voice_that_falls_and_softens_is_more_likely_complete_than_one_that_stays_level() -> None:
    fall = prosodic_completion(voice([140, 140, 135, 130, 120, 110, 95, 85], [0.3] * 6 + [0.1, 0.04]))
    level = prosodic_completion(voice([140] * 8, [0.3] * 8))
    assert fall is not None and level is not None and fall > level
    assert prosodic_completion(np.zeros(RECOGNITION_RATE, np.float32)) is None
    assert prosodic_completion(np.zeros(10, np.float32)) is None
