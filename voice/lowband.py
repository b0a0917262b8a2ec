"""What the telephone cuts off below 300 Hz, put back for the voice detector.

Silero was taught with whole voices, and without their lowest harmonics it goes deaf in the middle of a sentence. What
is left of a voice still repeats itself as often as the fundamental swings, and rectified it holds that fundamental
again: the missing one that people hear on a telephone, too. Only the detector hears this; the recognizer needs none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from voice.audio import Samples

_GAIN = 2.0
"""Of the rectified sound's low band. 1 is a little worse, 3 no better, and on a line that lacks nothing none of them
changes anything (docs/benchmarks.md)."""


def _kernel(short: int, long: int) -> Samples:
    """The difference of two means, so that a steady level counts for nothing: 60 to 400 Hz at half height."""
    means: list[NDArray[np.float64]] = [np.hanning(size + 1) / np.hanning(size + 1).sum() for size in (short, long)]
    return (np.pad(means[0], (long - short) // 2) - means[1]).astype(np.float32)


_KERNEL = _kernel(48, 320)


class LowBand:
    """One stream at 16 kHz."""

    def __init__(self) -> None:
        self._held: Samples = np.zeros(len(_KERNEL) - 1, np.float32)

    def push(self, samples: Samples) -> Samples:
        """The next block, [T] float32, and what it lacks, which comes 10 ms late."""
        if not len(samples):
            return samples
        rectified = np.concatenate((self._held, np.abs(samples)))
        self._held = rectified[-len(self._held) :]
        low: Samples = np.convolve(rectified, _KERNEL, "valid").astype(np.float32)
        return samples + np.float32(_GAIN) * low
