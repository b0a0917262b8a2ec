"""Decides when to transcribe a turn in progress: often enough to display the words and prefill the language model, and
with full accuracy as soon as the user falls silent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Literal

from voice import events
from voice.asr import Utterance
from voice.audio.codec import RECOGNITION_RATE
from voice.captions import CaptionedUtterance
from voice.context import SessionContext
from voice.timing import Timing
from voice.turn_machine import TurnState

_log = logging.getLogger("rejoinder.voice")

Transcription = Literal["partial", "early"]
"""An interim transcript, or an early one with full accuracy, which may become the final transcript."""


@dataclass
class InterimTranscripts:
    """Schedules the transcriptions of one turn.

    Attributes:
        last_duration_ms: how long the last interim transcription took.
    """

    last_duration_ms: float = 0.0
    _transcribed_ms: int = 0
    _early_at_voiced_ms: int = -1

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


class InterimTranscriber:
    """Transcribes the turns of one conversation while they are in progress.

    Args:
        on_text: called with every interim transcript.
        current: the utterance of the turn in progress, or None.
    """

    def __init__(
        self, context: SessionContext, on_text: Callable[[str], None], current: Callable[[], Utterance | None]
    ) -> None:
        self._context, self._on_text, self._current = context, on_text, current
        self._schedule = InterimTranscripts()
        self._task: asyncio.Task[None] | None = None

    def begin_turn(self) -> None:
        """A new turn begins."""
        self._schedule = InterimTranscripts(self._schedule.last_duration_ms)

    def update(self, item_id: str, state: TurnState, timing: Timing) -> None:
        """Start a transcription if one is due. Call this whenever there is more audio."""
        utterance = self._current()
        if utterance is None:
            return
        busy = self._task is not None and not self._task.done()
        audio_ms = utterance.samples * 1000 // RECOGNITION_RATE
        kind = self._schedule.next_transcription(audio_ms, state, timing, busy=busy)
        if kind is not None:
            work = self._transcribe(item_id, utterance, utterance.new_request(), early=kind == "early")
            self._task = self._context.spawn(work)

    async def _transcribe(self, item_id: str, utterance: Utterance, number: int, *, early: bool) -> None:
        started, loop, models = self._context.clock(), asyncio.get_running_loop(), self._context.speech_models
        takes_turns = isinstance(utterance, CaptionedUtterance) and not early
        try:
            async with models.caption_slot if takes_turns else nullcontext():
                transcript = await loop.run_in_executor(
                    models.recognition_executor, partial(utterance.partial, number, early=early)
                )
        except Exception as error:  # if the recognizer is broken, the end of the turn reports it
            _log.warning("an interim transcript failed (%s); the turn goes on without it", type(error).__name__)
            return
        if transcript is None or utterance is not self._current():
            return
        if not early:
            self._schedule.last_duration_ms = (self._context.clock() - started) * 1000
        stable, unstable, words = transcript.stable, transcript.unstable, transcript.words
        self._context.emit(events.PartialTranscript(item_id, stable, unstable, words, transcript.num_stable))
        self._on_text(transcript.text)
