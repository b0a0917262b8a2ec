"""The transcripts of a conversation's finished turns and recordings. Responses wait for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from voice import events
from voice.asr import Utterance
from voice.audio.codec import RECOGNITION_RATE
from voice.context import SessionContext
from voice.history import Item
from voice.response_request import RequestError
from voice.turn_metrics import TurnMetrics
from voice.word_alignment import Word

_log = logging.getLogger("rejoinder.voice")

UNKNOWN_WORDS = "…"
"""Stands for the words of a turn that could not be transcribed. It gets a response, which fails and says so."""

_MAX_PENDING = 4
"""Turns of one conversation that may wait for transcription; recordings sent much faster than real time queue up."""


class TurnTranscripts:
    """Transcribes turns that have ended."""

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._pending: set[asyncio.Task[None]] = set()
        self._failure = ""

    async def wait_for_capacity(self) -> None:
        """Wait until another turn may end. This slows down clients that send much faster than real time, so that their
        transcription does not delay other conversations."""
        while len(self._pending) >= _MAX_PENDING:
            await asyncio.wait(set(self._pending), return_when=asyncio.FIRST_COMPLETED)

    def check_capacity(self) -> None:
        """Raises RequestError if too many turns wait for their transcripts."""
        if len(self._pending) >= _MAX_PENDING:
            raise RequestError(
                "too_many_pending_turns",
                f"{len(self._pending)} turns still wait to be transcribed: wait for their transcripts",
            )

    async def wait(self, fails: bool = True, once: bool = True) -> None:
        """Wait until every turn that has ended is transcribed.

        Args:
            fails: what waits fails if the last one could not be.
            once: nothing else does after it.

        Raises:
            RuntimeError: the last one could not be transcribed.
        """
        if self._pending:
            await asyncio.wait(set(self._pending))  # unlike gather, this does not cancel them with us
        failure = self._failure if fails else ""
        if fails and once:
            self._failure = ""
        if failure:
            raise RuntimeError(failure)

    def start(self, utterance: Utterance, voiced_ms: int, tail_ms: int = 0) -> asyncio.Task[str]:
        """Transcribe the first `voiced_ms` of a turn and the `tail_ms` after them."""
        voiced = voiced_ms * RECOGNITION_RATE // 1000
        until = min(voiced + tail_ms * RECOGNITION_RATE // 1000, utterance.samples)
        return self._context.spawn(self._transcribe(utterance, until, min(voiced, until)))

    async def _transcribe(self, utterance: Utterance, until: int, voiced: int) -> str:
        executor, request = self._context.speech_models.recognition_executor, utterance.latest_request
        return await asyncio.get_running_loop().run_in_executor(executor, utterance.final, until, voiced, request)

    def finish(
        self,
        item: Item,
        transcript: asyncio.Task[str],
        seconds: float,
        metrics: TurnMetrics,
        on_text: Callable[[str], None],
        details_of: Utterance | None = None,
    ) -> None:
        """Complete the item of a turn once its transcript is known.

        Args:
            seconds: length of the turn.
            on_text: called with the transcript; with an ellipsis if transcription failed.
            details_of: the turn, if the times and probabilities of its words are wanted. They are found after
                `on_text` was called, so that the response does not wait for them.
        """

        async def complete() -> None:
            try:
                text = await transcript
            except Exception as error:
                _log.exception("a turn could not be transcribed", extra={"turn_id": metrics.turn_id})
                self._failure = f"the turn could not be transcribed: {str(error) or type(error).__name__}"
                self._context.emit(events.TranscriptionFailed(item.id, self._failure))
                on_text(UNKNOWN_WORDS)
                return
            self._failure = ""
            item.text = f"{item.text} {text}".strip()
            item.complete = True
            metrics.stamp("transcript_final", self._context.clock())
            if details_of is None:
                self._context.emit(events.FinalTranscript(item.id, text, seconds))
                on_text(text)
                return
            on_text(text)
            words: list[Word] = []
            try:
                executor, until = self._context.speech_models.recognition_executor, int(seconds * RECOGNITION_RATE)
                words = await asyncio.get_running_loop().run_in_executor(executor, details_of.words, text, until)
            except RuntimeError:
                _log.exception("the words of a transcript could not be found in its audio")
            self._context.emit(events.FinalTranscript(item.id, text, seconds, tuple(words)))

        task = self._context.spawn(complete())
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    def add_recording(self, item: Item, utterance: Utterance, *, word_details: bool) -> None:
        """Transcribe a message that arrived as a recording. Its transcript follows the item's text."""
        transcript = self.start(utterance, utterance.samples * 1000 // RECOGNITION_RATE)
        seconds, details_of = utterance.samples / RECOGNITION_RATE, utterance if word_details else None
        self.finish(item, transcript, seconds, TurnMetrics(""), lambda text: None, details_of)
