"""The jitter buffer: reordered, late and lost chunks of the caller's audio."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.telephony.jitter_buffer import MAX_WAITING, JitterBuffer
from tests.server.telephony.sine import sine
from voice.audio.codec import RECOGNITION_RATE, Encoding, decode, encode
from voice.audio.resampling import Resampler

FRAME = 160


@pytest.mark.parametrize("encoding", ["pcmu", "pcma"])
def test_a_reordered_sine_is_received_without_clicks(encoding: Encoding) -> None:
    """In frames of 20 ms that arrive out of order: reordered, decoded, and resampled for the voice detector."""
    wave = encode(sine(8_000, 2.0), encoding)
    frames = [(n, wave[n * FRAME : (n + 1) * FRAME]) for n in range(100)]
    for n in range(5, 95, 7):
        frames[n], frames[n + 1] = frames[n + 1], frames[n]
    buffer, resampler = JitterBuffer(0xFF), Resampler(8_000, RECOGNITION_RATE)
    samples = np.concatenate([resampler.push(decode(buffer.push(data, n), encoding)) for n, data in frames])
    error = np.abs(samples - sine(RECOGNITION_RATE, 2.0)[: len(samples)])[64:]
    assert len(samples) >= 2 * RECOGNITION_RATE - 64
    assert error.max() < 0.02


def test_lost_frames_become_silence_of_the_same_length() -> None:
    buffer = JitterBuffer(0xFF)
    received = b"".join(buffer.push(bytes([n]) * FRAME, n) for n in range(20) if n not in (5, 6))
    assert received == b"".join((b"\xff" if n in (5, 6) else bytes([n])) * FRAME for n in range(20))


def test_a_frame_that_arrives_too_late_is_dropped() -> None:
    buffer = JitterBuffer(0xFF)
    received = b"".join(buffer.push(bytes([n]) * FRAME, n) for n in (1, 2, 4, 5, 6, 7, 3, 8))
    assert len(received) == 8 * FRAME
    assert received[2 * FRAME : 3 * FRAME] == b"\xff" * FRAME


@given(st.lists(st.integers(-(2**40), 2**40) | st.none(), max_size=80))
def test_no_sequence_numbers_make_the_output_or_the_buffer_grow_without_bound(numbers: list[int | None]) -> None:
    buffer, total = JitterBuffer(0), 0
    for number in numbers:
        total += len(buffer.push(b"x" * 10, number))
    assert total <= 10 * (len(numbers) + 51 * len(numbers))
    assert len(buffer._waiting) <= MAX_WAITING + 1
