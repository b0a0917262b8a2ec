"""A sine wave, for tests of continuity."""

from __future__ import annotations

import numpy as np

from voice.audio.codec import Samples


def sine(rate: int, seconds: float, hz: float = 440.0) -> Samples:
    """[T] float32 at `rate`, amplitude 0.5."""
    return (0.5 * np.sin(2 * np.pi * hz * np.arange(int(rate * seconds)) / rate)).astype(np.float32)
