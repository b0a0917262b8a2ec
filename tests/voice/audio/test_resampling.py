"""Sample-rate conversion, in blocks and as a whole."""

from __future__ import annotations

import numpy as np
import pytest

from tests.voice.audio.signals import sine
from voice.audio.codec import INPUT_RATES, RECOGNITION_RATE
from voice.audio.resampling import Resampler


def test_telephone_audio_is_upsampled_with_little_delay() -> None:
    wave, stream = sine(8_000, 1.0, 3000.0), Resampler(8_000, RECOGNITION_RATE)
    first = stream.push(wave[:160])
    assert len(first) >= 2 * (160 - 16)
    joined = np.concatenate((first, stream.push(wave[160:]), stream.push(wave[:0], last=True)))
    assert np.abs(joined - sine(RECOGNITION_RATE, 1.0, 3000.0))[64:-64].max() < 0.001


@pytest.mark.parametrize("source", INPUT_RATES)
@pytest.mark.parametrize("sizes", [[160], [1, 7, 333], [4096]])
def test_resampling_in_blocks_leaves_no_seams(source: int, sizes: list[int]) -> None:
    wave = sine(source, 1.0)
    stream, out, start, n = Resampler(source, RECOGNITION_RATE), [], 0, 0
    while start < len(wave):
        size = sizes[n % len(sizes)]
        out.append(stream.push(wave[start : start + size]))
        start, n = start + size, n + 1
    out.append(stream.push(np.zeros(0, np.float32), last=True))
    joined = np.concatenate(out)
    expected = sine(RECOGNITION_RATE, 1.0)
    assert abs(len(joined) - len(expected)) <= 2
    middle = slice(800, 15_000)
    assert np.abs(joined[middle] - expected[middle]).max() < 0.01
