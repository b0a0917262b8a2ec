"""How fast and how loud a conversation's voice speaks, beside what its settings say: users may ask for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from agent.words.language import Manner
from voice.audio.codec import Samples

_STEP = 1.25
"""A listener notices this difference in speed; loudness changes by its square, about 4 dB."""

_SPEEDS, _GAINS = (0.5, 1.6), (0.25, 4.0)
"""Outside of these a voice cannot be understood."""

_KNEE = 0.7
"""Amplitude above which louder speech is rounded off, so that no peak is cut."""


@dataclass(frozen=True)
class SpeakingManner:
    """The manner of one conversation.

    Attributes:
        speed: times that of the settings.
        gain: times the voice's own amplitude.
    """

    speed: float = 1.0
    gain: float = 1.0

    def changed(self, manner: Manner) -> SpeakingManner:
        """The manner after a wish."""
        match manner:
            case "slower" | "faster":
                factor = _STEP if manner == "faster" else 1 / _STEP
                return replace(self, speed=_within(_SPEEDS, self.speed * factor))
            case "louder" | "quieter":
                factor = _STEP**2 if manner == "louder" else _STEP**-2
                return replace(self, gain=_within(_GAINS, self.gain * factor))
            case "normal":
                return SpeakingManner()

    def speed_of(self, own: float) -> float:
        """The speed of a voice whose settings say `own`."""
        return own if self.speed == 1.0 else _within((min(own, _SPEEDS[0]), max(own, _SPEEDS[1])), own * self.speed)

    def amplified(self, samples: Samples) -> Samples:
        """Speech [T] float32 with this gain; its peaks stay below 1."""
        if self.gain == 1.0:
            return samples
        louder = samples * np.float32(self.gain)
        over = np.abs(louder) > _KNEE
        room = 1 - _KNEE
        beyond = (np.abs(louder[over]) - _KNEE) / room
        louder[over] = np.sign(louder[over]) * (_KNEE + room * beyond / (1 + beyond))
        return louder


def _within(bounds: tuple[float, float], value: float) -> float:
    return min(max(value, bounds[0]), bounds[1])
