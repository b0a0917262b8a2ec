"""PCM and G.711 encoding, and silence trimming.

Inside `voice`, audio is mono float32 in [-1, 1]. 16-bit integers and G.711 bytes exist only at the edges.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
"""[T] float32 in [-1, 1], mono."""

PCM16 = NDArray[np.int16]
"""[T] mono. Long recordings are kept like this, which takes half the memory of `Samples`."""

INPUT_RATES = (8_000, 16_000, 24_000, 48_000)
"""Sample rates in Hz that a microphone or a client may send."""

RECOGNITION_RATE = 16_000
"""Hz. The voice detectors and the recognizer were trained on this rate."""

OUTPUT_RATE = 24_000
"""Hz of synthesized speech: the only PCM rate that the Realtime protocol names."""

TELEPHONE_RATE = 8_000
"""Hz of G.711 audio."""

Encoding = Literal["pcm", "pcmu", "pcma"]
"""How samples are encoded as bytes: 16-bit little-endian PCM, G.711 µ-law or G.711 A-law."""

AUDIBLE_AMPLITUDE = 0.01
"""Samples at or above this amplitude (-40 dBFS) count as sound. Piper's pauses stay below 0.003, and its softest
consonants rise above 0.015."""


class BadAudio(ValueError):
    """Audio that cannot be used. The message says why."""


def from_pcm16(data: bytes) -> Samples:
    """Decode 16-bit little-endian PCM.

    Raises:
        BadAudio: the number of bytes is odd.
    """
    if len(data) % 2:
        raise BadAudio(f"{len(data)} bytes are not 16-bit samples: the number of bytes must be even")
    return (np.frombuffer(data, "<i2").astype(np.float32)) / 32768.0


def to_pcm16(samples: Samples) -> bytes:
    """Encode samples as 16-bit little-endian PCM. Values beyond full scale are clipped."""
    return (np.clip(samples, -1.0, 32767 / 32768) * 32768.0).round().astype("<i2").tobytes()


def _mu_law() -> tuple[NDArray[np.uint8], Samples]:
    """Tables of ITU-T G.711 µ-law: the code of each 16-bit sample, indexed by its bits, and the sample of each code."""
    linear = np.arange(1 << 16, dtype=np.uint16).view(np.int16).astype(np.int32) >> 2
    magnitude = np.minimum(np.abs(linear), 8158) + 33
    segment = np.floor(np.log2(magnitude)).astype(np.int32) - 5
    code = (segment << 4) | ((magnitude >> (segment + 1)) & 15)
    codes = np.where(linear < 0, code ^ 0x7F, code ^ 0xFF).astype(np.uint8)
    bits = ~np.arange(256, dtype=np.int32) & 0xFF
    steps = ((((bits & 15) << 3) + 132) << (bits >> 4 & 7)) - 132
    return codes, (np.where(bits & 0x80, -steps, steps) / 32768).astype(np.float32)


def _a_law() -> tuple[NDArray[np.uint8], Samples]:
    """The same tables for A-law."""
    linear = np.arange(1 << 16, dtype=np.uint16).view(np.int16).astype(np.int32) >> 3
    magnitude = np.where(linear < 0, -linear - 1, linear)
    segment = np.maximum(np.floor(np.log2(np.maximum(magnitude, 1))).astype(np.int32) - 4, 0)
    code = (segment << 4) | ((magnitude >> np.maximum(segment, 1)) & 15)
    codes = np.where(linear < 0, code ^ 0x55, code ^ 0xD5).astype(np.uint8)
    bits = np.arange(256, dtype=np.int32) ^ 0x55
    segment, step = bits >> 4 & 7, ((bits & 15) << 4) + 8
    steps = np.where(segment == 0, step, (step + 256) << np.maximum(segment - 1, 0))
    return codes, (np.where(bits & 0x80, steps, -steps) / 32768).astype(np.float32)


_G711 = {"pcmu": _mu_law(), "pcma": _a_law()}


def encode(samples: Samples, encoding: Encoding) -> bytes:
    """Encode samples as bytes. Values beyond full scale are clipped."""
    pcm = to_pcm16(samples)
    if encoding == "pcm":
        return pcm
    codes, _ = _G711[encoding]
    return bytes(codes[np.frombuffer(pcm, "<u2")])


def decode(data: bytes, encoding: Encoding) -> Samples:
    """Decode bytes to samples.

    Raises:
        BadAudio: 16-bit PCM has an odd number of bytes. Any bytes are valid G.711.
    """
    if encoding == "pcm":
        return from_pcm16(data)
    _, samples = _G711[encoding]
    return samples[np.frombuffer(data, np.uint8)]


def without_silence(samples: Samples, rate: int, *, lead_ms: float, tail_ms: float) -> slice:
    """Where the sound is, with at most `lead_ms` of silence before it and `tail_ms` after it. Silent audio has none."""
    audible = np.flatnonzero(np.abs(samples) >= AUDIBLE_AMPLITUDE)
    if not audible.size:
        return slice(0, 0)
    start = max(0, int(audible[0]) - math.ceil(lead_ms * rate / 1000))
    return slice(start, min(len(samples), int(audible[-1]) + 1 + math.ceil(tail_ms * rate / 1000)))
