"""Tells the user from quieter background voices by loudness.

A radio and people at other tables speak as well, and no voice detector tells them from the user; they are quieter. The
loudest and the softest windows of the last seconds give the levels of the user and of the background. In a quiet room
the background is silence, and everything audible passes.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from voice.audio.codec import Samples

_USER_WINDOWS, _BACKGROUND_WINDOWS = 250, 80
"""Windows of 32 ms that are remembered: 8 s for the user's level, 2.5 s for the background, which may start at any
time."""

_USER_PERCENTILE, _BACKGROUND_PERCENTILE = 97, 5
"""Percentiles of the level that stand for the user and for the background."""

_MIN_ABOVE_BACKGROUND_DB = 12.0
"""The user is this much louder than the softest background, whose own level varies by as much."""

_MAX_BELOW_USER_DB = 10.5
"""The user is never this much softer than at their loudest. Unstressed syllables are 10 dB softer; with background
voices 10 dB below the user, some of them are lost. In a quiet room the other limit is lower, and none are."""

_SILENCE_DB = -90.0
"""Level assigned to digital silence."""


class LoudnessGate:
    """Tracks the level of one stream."""

    def __init__(self) -> None:
        self._levels: deque[float] = deque(maxlen=_USER_WINDOWS)

    def push(self, window: Samples) -> None:
        """Add the next window."""
        power = float(np.mean(np.square(window, dtype=np.float64)))
        self._levels.append(max(_SILENCE_DB, 10 * np.log10(power + 1e-12)))

    def is_loud_enough(self) -> bool:
        """Whether the newest window is as loud as the user's speech."""
        levels = np.array(self._levels)
        background = np.percentile(levels[-_BACKGROUND_WINDOWS:], _BACKGROUND_PERCENTILE)
        user = np.percentile(levels, _USER_PERCENTILE)
        return bool(levels[-1] >= min(background + _MIN_ABOVE_BACKGROUND_DB, user - _MAX_BELOW_USER_DB))
