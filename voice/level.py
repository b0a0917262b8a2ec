"""Is a sound as loud as the user, or somebody far behind them? A radio and people at other tables speak as well, and
no voice detector tells them from the user; they are quieter.

The loudest and the softest of the last seconds say where the user and the background are. In a quiet room the
background is silence and nothing that can be heard is turned away.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from voice.audio import Samples

_LONG, _SHORT = 250, 80
"""Windows of 32 ms that are remembered: eight seconds for the user's voice, two and a half for the background, which
may begin at any time."""

_LOUDEST, _SOFTEST = 97, 5
"""Percentiles that stand for the user's voice and for the background."""

_ABOVE_DB = 12.0
"""The user is so much louder than the softest of the background, whose own level goes up and down by as much."""

_BELOW_DB = 10.5
"""And never so much softer than at their loudest: syllables without stress are 10 dB softer, and behind voices 10 dB
below theirs some of those are lost. In a quiet room the other rule is the lower one, and nothing is."""

_SILENCE_DB = -90.0
"""What digital silence counts as."""


class LevelGate:
    """Follows the level of one stream."""

    def __init__(self) -> None:
        self._levels: deque[float] = deque(maxlen=_LONG)

    def hear(self, window: Samples) -> None:
        """Take the next window."""
        power = float(np.mean(np.square(window, dtype=np.float64)))
        self._levels.append(max(_SILENCE_DB, 10 * np.log10(power + 1e-12)))

    def loud(self) -> bool:
        """Whether the newest window is as loud as the user speaks."""
        levels = np.array(self._levels)
        softest, loudest = np.percentile(levels[-_SHORT:], _SOFTEST), np.percentile(levels, _LOUDEST)
        return bool(levels[-1] >= min(softest + _ABOVE_DB, loudest - _BELOW_DB))
