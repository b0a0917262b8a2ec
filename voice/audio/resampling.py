"""Sample-rate conversion: of streams with little delay, and of whole recordings."""

from __future__ import annotations

from math import gcd

import numpy as np
import soxr
from numpy.lib.stride_tricks import sliding_window_view

from voice.audio.codec import RECOGNITION_RATE, Samples

_MAX_PHASES = 8
"""Ratios of larger numbers, as of 44.1 kHz, need more filters than are worth keeping."""


class _Polyphase:
    """A windowed sinc that needs 2 ms of the future: one set of taps for each position of an output sample between two
    input samples (Crochiere and Rabiner, Multirate Digital Signal Processing, 1983, section 3.3).

    Up to 500 Hz below half of the lower rate, its error is below -59 dB; from 500 Hz above it on, audio is reduced by
    60 dB.

    soxr's streams deliver in bursts, 21 ms late on average and 37 at most from 24 or 48 to 16 kHz, 64 and 115 from
    8 kHz (HQ, blocks of 20 ms; measured). The user's last word would wait that long for the voice detector.
    """

    _HALF_S = 0.002
    _BETA = 6.0

    def __init__(self, source: int, target: int, delayed: bool) -> None:
        divisor = gcd(source, target)
        self._up, self._down = target // divisor, source // divisor
        self._half = round(self._HALF_S * source)
        cutoff = min(1.0, target / source)
        phases = np.arange(self._up)[:, None] / self._up
        distance = np.arange(1 - self._half, self._half + 1) - phases  # in input samples
        window = np.i0(self._BETA * np.sqrt(1 - (distance / self._half) ** 2))
        taps = np.sinc(cutoff * distance) * window
        self._taps: Samples = (taps / taps.sum(1, keepdims=True)).astype(np.float32)
        self._history: Samples = np.zeros(self._half - 1 + (self._half if delayed else 0), np.float32)
        self._position = 0  # of the next output sample in the history, in input samples / `_up`

    def resample_chunk(self, samples: Samples, *, last: bool = False) -> Samples:
        """Convert the next block. Same signature as soxr's stream."""
        pending = np.concatenate((self._history, samples, np.zeros(self._half if last else 0, np.float32)))
        windows_end = self._up * (len(pending) - 2 * self._half + 1)
        count = max(0, -((self._position - windows_end) // self._down))
        out: Samples = np.empty(count, np.float32)
        if count:
            windows = sliding_window_view(pending, 2 * self._half)
            for first in range(min(self._up, count)):
                start, phase = divmod(self._position + first * self._down, self._up)
                phase_out = out[first :: self._up]
                phase_out[:] = windows[start :: self._down][: len(phase_out)] @ self._taps[phase]
        consumed, self._position = divmod(self._position + count * self._down, self._up)
        self._history = pending[consumed:]
        return out


class Resampler:
    """Converts one stream from one rate to another, without seams between blocks.

    Args:
        source, target: Hz.
        delayed: whether to delay the audio by 2 ms, so that a block of 32 ms in is a block of 32 ms out. Otherwise the
            last 2 ms of every block come with the next one.
    """

    def __init__(self, source: int, target: int, *, delayed: bool = False) -> None:
        self._stream = None
        if target // gcd(source, target) > _MAX_PHASES:
            self._stream = soxr.ResampleStream(source, target, 1, dtype="float32")
        elif target != source:
            self._stream = _Polyphase(source, target, delayed)

    def push(self, samples: Samples, *, last: bool = False) -> Samples:
        """Convert the next block. `last` also returns what the filter still holds."""
        if self._stream is None:
            return samples
        out: Samples = self._stream.resample_chunk(np.ascontiguousarray(samples, np.float32), last=last)
        return out


class InputResampler:
    """Converts a stream to the rate of speech recognition. Its own rate may change."""

    def __init__(self) -> None:
        self._rate, self._resampler = RECOGNITION_RATE, Resampler(RECOGNITION_RATE, RECOGNITION_RATE)

    def push(self, samples: Samples, rate: int) -> Samples:
        """Convert the next block, which is at `rate` Hz."""
        if rate != self._rate:
            self._rate, self._resampler = rate, Resampler(rate, RECOGNITION_RATE, delayed=True)
        return self._resampler.push(samples)


def resample(samples: Samples, source: int, target: int) -> Samples:
    """Convert a whole recording."""
    if source == target:
        return samples
    out: Samples = soxr.resample(np.ascontiguousarray(samples, np.float32), source, target)
    return out
