"""PCM blocks, G.711, and streaming sample-rate conversion.

Inside `voice` sound is mono float32 in [-1, 1]; 16-bit integers and the telephone's bytes exist only at the edges.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

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

TELEPHONE_RATE = 8_000
"""Hz of G.711, the telephone's sound."""

Encoding = Literal["pcm", "pcmu", "pcma"]
"""How samples are written as bytes: 16-bit little-endian, or G.711 in its µ-law or A-law."""

AUDIBLE = 0.01
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


def _mu_law() -> tuple[NDArray[np.uint8], Samples]:
    """Tables of ITU-T G.711 µ-law: codes of all 16-bit samples, by their bits, and samples of all codes."""
    linear = np.arange(1 << 16, dtype=np.uint16).view(np.int16).astype(np.int32) >> 2
    size = np.minimum(np.abs(linear), 8158) + 33
    segment = np.floor(np.log2(size)).astype(np.int32) - 5
    code = (segment << 4) | ((size >> (segment + 1)) & 15)
    codes = np.where(linear < 0, code ^ 0x7F, code ^ 0xFF).astype(np.uint8)
    bits = ~np.arange(256, dtype=np.int32) & 0xFF
    steps = ((((bits & 15) << 3) + 132) << (bits >> 4 & 7)) - 132
    return codes, (np.where(bits & 0x80, -steps, steps) / 32768).astype(np.float32)


def _a_law() -> tuple[NDArray[np.uint8], Samples]:
    """The same tables for A-law."""
    linear = np.arange(1 << 16, dtype=np.uint16).view(np.int16).astype(np.int32) >> 3
    size = np.where(linear < 0, -linear - 1, linear)
    segment = np.maximum(np.floor(np.log2(np.maximum(size, 1))).astype(np.int32) - 4, 0)
    code = (segment << 4) | ((size >> np.maximum(segment, 1)) & 15)
    codes = np.where(linear < 0, code ^ 0x55, code ^ 0xD5).astype(np.uint8)
    bits = np.arange(256, dtype=np.int32) ^ 0x55
    segment, step = bits >> 4 & 7, ((bits & 15) << 4) + 8
    steps = np.where(segment == 0, step, (step + 256) << np.maximum(segment - 1, 0))
    return codes, (np.where(bits & 0x80, steps, -steps) / 32768).astype(np.float32)


_G711 = {"pcmu": _mu_law(), "pcma": _a_law()}


def encode(samples: Samples, encoding: Encoding) -> bytes:
    """Samples as bytes; what is beyond full scale is clipped."""
    pcm = to_pcm16(samples)
    if encoding == "pcm":
        return pcm
    codes, _ = _G711[encoding]
    return bytes(codes[np.frombuffer(pcm, "<u2")])


def decode(data: bytes, encoding: Encoding) -> Samples:
    """Bytes as samples.

    Raises:
        BadAudio: an odd number of bytes of 16-bit samples. Any bytes are G.711.
    """
    if encoding == "pcm":
        return from_pcm16(data)
    _, samples = _G711[encoding]
    return samples[np.frombuffer(data, np.uint8)]


class _Doubler:
    """Twice the rate: each second sample is interpolated with a windowed sinc of 32 taps.

    The telephone's sound goes through here on its way to the voice detector. soxr holds 66 ms of it back (8 to 16 kHz,
    HQ; measured), this 2 ms; up to 3.4 kHz, where the telephone ends, it errs by less than -59 dB.
    """

    _HALF = 16
    _offsets = np.arange(-_HALF + 0.5, _HALF)
    _TAPS: Samples = (np.sinc(_offsets) * np.kaiser(2 * _HALF, 6.0)).astype(np.float32)
    _TAPS /= _TAPS.sum()

    def __init__(self) -> None:
        self._held: Samples = np.zeros(self._HALF - 1, np.float32)

    def resample_chunk(self, samples: Samples, *, last: bool = False) -> Samples:
        """The next block, as soxr's stream takes it."""
        tail = np.zeros(self._HALF if last else 0, np.float32)
        heard = np.concatenate((self._held, samples, tail))
        count = max(0, len(heard) - 2 * self._HALF + 1)
        self._held = heard[count:]
        out: Samples = np.empty(2 * count, np.float32)
        if count:
            out[0::2] = heard[self._HALF - 1 : self._HALF - 1 + count]
            out[1::2] = np.convolve(heard, self._TAPS, "valid")
        return out


class Resampler:
    """One direction of one stream from one rate to another, without seams between blocks.

    Args:
        source, target: Hz.
    """

    def __init__(self, source: int, target: int) -> None:
        self._stream = None
        if target == 2 * source:
            self._stream = _Doubler()
        elif target != source:
            self._stream = soxr.ResampleStream(source, target, 1, dtype="float32")

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
    loud = np.flatnonzero(np.abs(samples) >= AUDIBLE)
    if not loud.size:
        return samples[:0]
    start = max(0, int(loud[0]) - math.ceil(lead_ms * rate / 1000))
    end = int(loud[-1]) + 1 + math.ceil(tail_ms * rate / 1000)
    return samples[start:end]


def blocks(samples: Samples, size: int) -> Iterator[Samples]:
    """Split into blocks of `size` samples; the last may be shorter."""
    for start in range(0, len(samples), size):
        yield samples[start : start + size]
