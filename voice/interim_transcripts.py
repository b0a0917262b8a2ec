"""Decides when to transcribe a turn in progress: often enough to display the words and prefill the language model, and
with full accuracy as soon as the user falls silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from voice.timing import Timing
from voice.turn_machine import TurnState

Transcription = Literal["partial", "early"]
"""An interim transcript, or an early one with full accuracy, which may become the final transcript."""


@dataclass
class InterimTranscripts:
    """Schedules the transcriptions of one turn at a time.

    Attributes:
        last_duration_ms: how long the last interim transcription took.
    """

    last_duration_ms: float = 0.0
    _transcribed_ms: int = 0
    _early_at_voiced_ms: int = -1

    def begin_turn(self) -> None:
        """A new turn begins."""
        self._transcribed_ms, self._early_at_voiced_ms = 0, -1

    def next_transcription(
        self, turn_audio_ms: int, state: TurnState, timing: Timing, *, busy: bool
    ) -> Transcription | None:
        """The transcription to start now, or None.

        Args:
            turn_audio_ms: length of the turn's audio so far.
            busy: a transcription of an earlier part of this turn is running.
        """
        if state.speculating:
            return None
        silence_ms = state.received_ms - state.last_voiced_ms
        if silence_ms >= timing.early_transcription_ms:
            if state.last_voiced_ms == self._early_at_voiced_ms:
                return None  # no speech since the last early transcription
            self._transcribed_ms, self._early_at_voiced_ms = turn_audio_ms, state.last_voiced_ms
            return "early"
        interval_ms = max(timing.partial_interval_ms, timing.partial_interval_factor * self.last_duration_ms)
        if busy or silence_ms > 0 or turn_audio_ms - self._transcribed_ms < interval_ms:
            return None
        self._transcribed_ms = turn_audio_ms
        return "partial"
