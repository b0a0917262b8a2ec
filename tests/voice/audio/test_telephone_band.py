"""Restoring the low band that the telephone cuts off."""

from __future__ import annotations

import numpy as np
import pytest

from voice.audio.codec import RECOGNITION_RATE
from voice.audio.telephone_band import TelephoneBandRestorer


def test_the_missing_fundamental_is_restored_without_seams_between_blocks() -> None:
    t = np.arange(2 * RECOGNITION_RATE) / RECOGNITION_RATE
    voice = sum(np.sin(2 * np.pi * 120 * n * t) / n for n in range(3, 20)).astype(np.float32) / 4  # type: ignore[union-attr]
    in_one_block = TelephoneBandRestorer().push(voice)
    restorer, start, blocks = TelephoneBandRestorer(), 0, []
    for size in (320, 1, 0, 5000, 319, len(voice)):
        blocks.append(restorer.push(voice[start : start + size]))
        start += size
    np.testing.assert_allclose(np.concatenate(blocks), in_one_block, atol=1e-5)
    before, after = (np.abs(np.fft.rfft(samples[RECOGNITION_RATE:])) for samples in (voice, in_one_block))
    assert after[120] > 0.3 * after.max() > 100 * before[120]
    assert np.abs(after - before)[600:].max() < 0.1 * before.max()  # the original band is unchanged


@pytest.mark.parametrize("level", [0.0, 0.3])
def test_silence_and_a_constant_level_get_no_low_band(level: float) -> None:
    constant = np.full(RECOGNITION_RATE, level, np.float32)
    np.testing.assert_allclose(TelephoneBandRestorer().push(constant)[1000:], constant[1000:], atol=1e-5)
