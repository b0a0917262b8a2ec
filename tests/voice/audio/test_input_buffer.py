"""Buffered input audio, addressed by the audio clock."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice.audio.input_buffer import InputBuffer


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=20), st.integers(0, 2000))
def test_the_buffer_returns_the_audio_since_any_position(sizes: list[int], since_ms: int) -> None:
    buffer, received = InputBuffer(), np.zeros(0, np.float32)
    for n, size in enumerate(sizes):
        block = np.arange(len(received), len(received) + size).astype(np.float32)
        buffer.add(block, float(n))
        received = np.concatenate((received, block))
    assert buffer.end_ms == len(received) // 16
    assert np.array_equal(buffer.since(since_ms), received[since_ms * 16 :])
    buffer.discard_before(min(since_ms, buffer.end_ms))
    assert np.array_equal(buffer.since(0), received[min(since_ms, buffer.end_ms) * 16 :])
    buffer.keep_last(100)
    assert buffer.buffered_ms <= 200 or buffer.buffered_ms == buffer.end_ms
    remaining = buffer.since(0)
    assert np.array_equal(remaining, received[len(received) - len(remaining) :])


def test_the_time_of_a_sample_follows_from_the_arrival_of_its_block() -> None:
    buffer = InputBuffer()
    for n in range(10):
        buffer.add(np.zeros(320, np.float32), 100 + 0.02 * (n + 1))
    assert buffer.time_of(100) == pytest.approx(100.1)
    assert buffer.time_of(90) == pytest.approx(100.09)
    buffer.clear()
    assert (buffer.buffered_ms, buffer.end_ms) == (0, 200)
    assert buffer.time_of(190) == pytest.approx(100.19)
