"""Sample-rate conversion, in blocks and as a whole."""

from __future__ import annotations

import numpy as np
import pytest

from tests.voice.audio.signals import sine
from voice.audio.codec import INPUT_RATES, RECOGNITION_RATE, Samples
from voice.audio.resampling import Resampler


def greatest_error(source: int, target: int, wave: Samples, expected: Samples) -> float:
    """The greatest difference between a converted wave and what it should be, away from its ends."""
    converted = Resampler(source, target).push(wave, last=True)
    assert len(converted) == len(expected)
    return float(np.abs(converted - expected)[64:-64].max())


@pytest.mark.parametrize("source", INPUT_RATES)
def test_every_block_of_a_delayed_stream_is_converted_when_it_arrives(source: int) -> None:
    wave, stream, block = sine(source, 0.4), Resampler(source, RECOGNITION_RATE, delayed=True), source // 50
    assert all(len(stream.push(wave[n : n + block])) == 320 for n in range(0, len(wave), block))


@pytest.mark.parametrize(("source", "target"), [(8_000, 16_000), (24_000, 16_000), (48_000, 16_000), (24_000, 8_000)])
@pytest.mark.parametrize("hz", [300.0, 3_000.0, 3_400.0])
def test_what_a_telephone_transmits_is_converted_accurately(source: int, target: int, hz: float) -> None:
    assert greatest_error(source, target, sine(source, 1.0, hz), sine(target, 1.0, hz)) < 0.001


@pytest.mark.parametrize("source", [24_000, 48_000])
def test_what_the_lower_rate_cannot_represent_is_removed(source: int) -> None:
    silence = np.zeros(RECOGNITION_RATE, np.float32)
    assert greatest_error(source, RECOGNITION_RATE, sine(source, 1.0, 8_600.0), silence) < 0.001


def test_a_delayed_stream_is_two_ms_late() -> None:
    wave = sine(24_000, 1.0)
    late = Resampler(24_000, RECOGNITION_RATE, delayed=True).push(wave)
    assert np.abs(late[32:] - Resampler(24_000, RECOGNITION_RATE).push(wave)).max() < 1e-6


def test_unusual_rates_are_converted() -> None:
    stream = Resampler(24_000, 44_100)
    joined = np.concatenate((stream.push(sine(24_000, 1.0)), stream.push(np.zeros(0, np.float32), last=True)))
    assert np.abs(joined - sine(44_100, 1.0))[800:-800].max() < 0.01


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
    assert len(joined) == len(expected)
    assert np.abs(joined - expected)[64:-64].max() < 0.001
