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
"""The user is this much louder than the softest background, whose own level varies by as much. Where the background is
so loud that the user is not twice this much above it, the threshold lies halfway between the two: with a threshold at a
fixed distance below the user, one window in twenty of ten voices 10 dB below the user passed, and kept turns open for
seconds (docs/benchmarks/noise.md)."""

_HYSTERESIS_DB = 4.0
"""While the user speaks, windows count down to this much below the threshold: the last syllables are soft."""

_NEAR_USER_DB, _MAX_FAR_WINDOWS, _MAX_FAR_PASSED = 4.0, 28, 20
"""In noise, people seldom speak for 0.9 s without coming this near to their own level. Several quieter voices together
pass the threshold for as long (0.64 s of that), and at 5 dB kept turns open for seconds."""

_SILENCE_DB = -90.0
"""Level assigned to digital silence."""


class LoudnessGate:
    """Tracks the level of one stream."""

    def __init__(self) -> None:
        self._levels: deque[float] = deque(maxlen=_USER_WINDOWS)
        self._passed: deque[bool] = deque(maxlen=_USER_WINDOWS)
        self._open = False

    def push(self, window: Samples) -> None:
        """Add the next window."""
        power = float(np.mean(np.square(window, dtype=np.float64)))
        self._levels.append(max(_SILENCE_DB, 10 * np.log10(power + 1e-12)))
        self._passed.append(False)

    def is_loud_enough(self) -> bool:
        """Whether the newest window is as loud as the user's speech."""
        background, user = self._background_and_user_db()
        threshold = min(background + _MIN_ABOVE_BACKGROUND_DB, (background + user) / 2)
        self._open = bool(self._levels[-1] >= threshold - (_HYSTERESIS_DB if self._open else 0.0))
        self._passed[-1] = self._open
        return self._open and not (_is_noisy(background, user) and self._is_far_from(user))

    @property
    def is_noisy(self) -> bool:
        """Whether the user is so close to the background that the threshold lies halfway between the two."""
        return _is_noisy(*self._background_and_user_db())

    def _is_far_from(self, user_db: float) -> bool:
        """Whether what passes has been too soft for the user for too long."""
        near = np.flatnonzero(np.array(self._levels) >= user_db - _NEAR_USER_DB)
        since = int(near[-1]) + 1 if len(near) else 0
        passed = list(self._passed)[since:]
        return len(passed) >= _MAX_FAR_WINDOWS and sum(passed) >= _MAX_FAR_PASSED

    def _background_and_user_db(self) -> tuple[float, float]:
        levels = np.array(self._levels)
        background = np.percentile(levels[-_BACKGROUND_WINDOWS:], _BACKGROUND_PERCENTILE)
        return float(background), float(np.percentile(levels, _USER_PERCENTILE))


def _is_noisy(background_db: float, user_db: float) -> bool:
    return user_db - background_db < 2 * _MIN_ABOVE_BACKGROUND_DB
