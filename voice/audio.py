"""PCM blocks and streaming sample-rate conversion.

Inside `voice` sound is mono float32 in [-1, 1]; 16-bit integers exist only at the edges.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import soxr
from numpy.typing import NDArray

Samples = NDArray[np.float32]
"""[T] float32 in [-1, 1], mono."""

INPUT_RATES = (8_000, 16_000, 24_000, 48_000)
"""Hz that a microphone or a client may send."""

HEARING_RATE = 16_000
"""Hz that the voice detectors and the recognizer were trained on."""

SPEAKING_RATE = 24_000
"""Hz that answers are sent at; the Realtime protocol's only PCM rate."""

_AUDIBLE = 0.01
"""Amplitude (-40 dBFS) from which a sample counts as sound: Piper's pauses stay below 0.003, its softest
consonants rise above 0.015."""


class BadAudio(ValueError):
    """Audio that cannot be taken; the message says why."""


def from_pcm16(data: bytes) -> Samples:
    """16-bit little-endian PCM to samples.

    Raises:
        BadAudio: an odd number of bytes.
    """
    if len(data) % 2:
        raise BadAudio(f"{len(data)} bytes are not 16-bit samples: the number of bytes must be even")
    return (np.frombuffer(data, "<i2").astype(np.float32)) / 32768.0


def to_pcm16(samples: Samples) -> bytes:
    """Samples to 16-bit little-endian PCM; what is beyond full scale is clipped."""
    return (np.clip(samples, -1.0, 32767 / 32768) * 32768.0).round().astype("<i2").tobytes()


class Resampler:
    """One direction of one stream from one rate to another, without seams between blocks.

    Args:
        source, target: Hz.
    """

    def __init__(self, source: int, target: int) -> None:
        self._stream = None if source == target else soxr.ResampleStream(source, target, 1, dtype="float32")

    def push(self, samples: Samples, *, last: bool = False) -> Samples:
        """Convert the next block; `last` also gives what the filter still holds."""
        if self._stream is None:
            return samples
        out: Samples = self._stream.resample_chunk(np.ascontiguousarray(samples, np.float32), last=last)
        return out


def resample(samples: Samples, source: int, target: int) -> Samples:
    """Convert a whole recording."""
    return Resampler(source, target).push(samples, last=True)


def trim(samples: Samples, rate: int, *, lead_ms: float, tail_ms: float) -> Samples:
    """Cut the silence at both ends to at most `lead_ms` and `tail_ms`; all-silent audio becomes empty."""
    loud = np.flatnonzero(np.abs(samples) >= _AUDIBLE)
    if not loud.size:
        return samples[:0]
    start = max(0, int(loud[0]) - math.ceil(lead_ms * rate / 1000))
    end = int(loud[-1]) + 1 + math.ceil(tail_ms * rate / 1000)
    return samples[start:end]


def blocks(samples: Samples, size: int) -> Iterator[Samples]:
    """Split into blocks of `size` samples; the last may be shorter."""
    for start in range(0, len(samples), size):
        yield samples[start : start + size]
