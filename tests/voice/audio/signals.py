"""Test signals."""

from __future__ import annotations

import numpy as np

from voice.audio.codec import Samples


def sine(rate: int, seconds: float, hz: float = 440.0) -> Samples:
    return (0.5 * np.sin(2 * np.pi * hz * np.arange(int(rate * seconds)) / rate)).astype(np.float32)
