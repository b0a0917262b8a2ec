"""When to transcribe what a user has said so far: often enough to show and to read ahead, and with care as soon as the
user falls silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from voice.timing import Timing
from voice.turn import TurnState

Wish = Literal["partial", "ahead"]
"""Transcribe; transcribe with care, for that may be all."""


@dataclass
class Partials:
    """Follows one turn.

    Attributes:
        took_ms: how long the last partial took.
    """

    took_ms: float = 0.0
    _heard_ms: int = 0
    _ahead_ms: int = -1

    def begin(self) -> None:
        """Another turn."""
        self._heard_ms, self._ahead_ms = 0, -1

    def wish(self, spoken_ms: int, state: TurnState, timing: Timing, *, busy: bool) -> Wish | None:
        """What to do now.

        Args:
            spoken_ms: length of the turn's sound so far.
            busy: an earlier part of this turn is being transcribed.
        """
        if state.guessing:
            return None
        silence = state.heard_ms - state.last_voiced_ms
        if silence >= timing.ahead_ms:
            if state.last_voiced_ms == self._ahead_ms:
                return None  # nothing was said since the last time
            self._heard_ms, self._ahead_ms = spoken_ms, state.last_voiced_ms
            return "ahead"
        every_ms = max(timing.partial_every_ms, timing.partial_share * self.took_ms)
        if busy or silence > 0 or spoken_ms - self._heard_ms < every_ms:
            return None
        self._heard_ms = spoken_ms
        return "partial"
