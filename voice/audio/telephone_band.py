"""Restores the band below 300 Hz, which the telephone cuts off, for the voice detector.

Silero was trained on full-band voices. Without their lowest harmonics it misses speech in the middle of a sentence. The
remaining harmonics still repeat at the fundamental frequency, so rectifying them brings the fundamental back: the
missing fundamental that people hear on a telephone, too. Only the detector gets this signal; the recognizer does not
need it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from voice.audio.codec import Samples

_GAIN = 2.0
"""Gain of the rectified signal's low band. 1 is slightly worse and 3 no better. On a full-band line none of them makes
a difference (docs/benchmarks/telephone.md)."""


def _kernel(short: int, long: int) -> Samples:
    """The difference of two moving averages, so that a constant level cancels: 60 to 400 Hz at half height."""
    means: list[NDArray[np.float64]] = [np.hanning(size + 1) / np.hanning(size + 1).sum() for size in (short, long)]
    return (np.pad(means[0], (long - short) // 2) - means[1]).astype(np.float32)


_KERNEL = _kernel(48, 320)


class TelephoneBandRestorer:
    """Restores the low band of one stream at 16 kHz."""

    def __init__(self) -> None:
        self._history: Samples = np.zeros(len(_KERNEL) - 1, np.float32)

    def push(self, samples: Samples) -> Samples:
        """Add the missing low band to the next block, [T] float32. The low band lags by 10 ms."""
        if not len(samples):
            return samples
        rectified = np.concatenate((self._history, np.abs(samples)))
        self._history = rectified[-len(self._history) :]
        low: Samples = np.convolve(rectified, _KERNEL, "valid").astype(np.float32)
        return samples + np.float32(_GAIN) * low
