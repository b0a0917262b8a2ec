"""One answer: thought, cut into clauses, spoken and sent, each stage as soon as the one before has something for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Literal

from voice import events
from voice.audio import SPEAKING_RATE, blocks
from voice.brain import Brain, Message
from voice.clauses import Clause, ClauseSplitter
from voice.history import Item, Span
from voice.stages import Stages
from voice.timeline import Timeline

_log = logging.getLogger("rejoinder.voice")

_LONGEST_AHEAD_S = 30.0
"""Sound sent ahead of its playing. More would only be thrown away when the user interrupts, and clients buffer no
endless amount: our page two minutes."""

_BLOCK_MS = 100
"""Sound in one event: the first can be played at once, and a client that stops wastes little."""


class Answer:
    """An answer under way.

    Args:
        item: the conversation's item that holds it; it grows as text and sound are sent.
        timeline: stamped as the stages pass.
        emit: told everything that happens.
        clock: seconds, monotonic.
        sounding: called when the first sound has been sent.
        speed: pace of the voice.
        not_before: when what was sent before this answer will have been played.

    Attributes:
        done: whether all of it was sent, or it was stopped.
        played_until: when the client will have played what was sent, if it plays at once.
        task: runs `run`; cancelled by `stop`.
    """

    def __init__(
        self,
        response_id: str,
        item: Item,
        timeline: Timeline,
        stages: Stages,
        emit: Callable[[events.SessionEvent], None],
        sounding: Callable[[], None],
        clock: Callable[[], float],
        speed: float,
        not_before: float,
    ) -> None:
        self.response_id, self.item, self.timeline = response_id, item, timeline
        self.done = False
        self.played_until = not_before
        self.task: asyncio.Task[None] | None = None
        self._stages, self._emit, self._sounding, self._clock, self._speed = stages, emit, sounding, clock, speed
        self._finished: str | None = None
        self._deadline: float | None = None

    async def run(
        self, brain: Brain, messages: Sequence[Message], max_tokens: int | None, deadline: float | None = None
    ) -> None:
        """Answer `messages` to the end. A failure of any stage ends the answer, not the conversation.

        Args:
            deadline: when a first clause is wanted of the brain, on `time.monotonic`.
        """
        self._deadline = deadline
        try:
            if self.item.spoken:
                clauses: asyncio.Queue[Clause | None] = asyncio.Queue()
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._think_aloud(brain, messages, max_tokens, clauses))
                    group.create_task(self._speak(clauses))
            else:
                await self._write(brain, messages, max_tokens)
        except Exception as error:
            causes = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
            if not all(isinstance(cause, ValueError) for cause in causes):
                _log.exception("an answer failed")
            self._finish("failed", "; ".join(str(cause) or type(cause).__name__ for cause in causes))
            return
        self.item.complete = True
        cut = self._finished == "length"
        self._finish("incomplete" if cut else "completed", "max_output_tokens" if cut else None)

    def stop(self, reason: str) -> None:
        """Fall silent now: what was not heard by now is taken out of the conversation."""
        if self.task is not None:
            self.task.cancel()
        unheard_ms = max(0.0, self.played_until - self._clock()) * 1000
        known = self.item.heard_ms is not None  # by the player's own count, which is better than ours
        if self.item.spoken and not known and (unheard_ms or not self.done):
            self.item.heard_ms = max(0.0, self.item.audio_ms - unheard_ms)
        self._finish("cancelled", reason)

    def _finish(self, status: Literal["completed", "cancelled", "incomplete", "failed"], reason: str | None) -> None:
        if not self.done:
            self.done = True
            self._emit(events.AnswerDone(self.response_id, self.item, status, reason, self.timeline))

    async def _think(
        self, brain: Brain, messages: Sequence[Message], max_tokens: int | None, take: Callable[[str], None]
    ) -> None:
        async for progress in brain.reply(messages, max_tokens=max_tokens, deadline=self._deadline):
            if progress.committed:
                self.timeline.stamp("first_committed", self._clock())
            self.timeline.steps, self.timeline.tokens = progress.step, progress.tokens
            self.timeline.prompt_tokens, self.timeline.cached_tokens = (
                progress.prompt_tokens,
                progress.cached_tokens,
            )
            self._finished = progress.finished
            if self.done:
                return
            self._emit(events.Drafted(self.response_id, progress.committed, progress.draft, progress.step))
            take(progress.committed)

    async def _think_aloud(
        self,
        brain: Brain,
        messages: Sequence[Message],
        max_tokens: int | None,
        clauses: asyncio.Queue[Clause | None],
    ) -> None:
        splitter = ClauseSplitter()

        def take(text: str) -> None:
            for clause in splitter.push(text):
                self.timeline.stamp("first_clause", self._clock())
                clauses.put_nowait(clause)

        await self._think(brain, messages, max_tokens, take)
        for clause in splitter.flush():
            self.timeline.stamp("first_clause", self._clock())
            clauses.put_nowait(clause)
        clauses.put_nowait(None)

    async def _write(self, brain: Brain, messages: Sequence[Message], max_tokens: int | None) -> None:
        def take(text: str) -> None:
            if text:
                self.item.text += text
                self.timeline.stamp("first_sent", self._clock())
                self._emit(events.AnswerText(self.response_id, self.item.id, text))

        await self._think(brain, messages, max_tokens, take)

    async def _speak(self, clauses: asyncio.Queue[Clause | None]) -> None:
        loop = asyncio.get_running_loop()
        while (clause := await clauses.get()) is not None:
            await asyncio.sleep(self.played_until - self._clock() - _LONGEST_AHEAD_S)
            sound = await loop.run_in_executor(self._stages.speaking, self._stages.voice.say, clause, self._speed)
            if self.done:
                return  # stopped while the clause was being spoken
            start_ms = self.item.audio_ms
            length_ms = len(sound) * 1000 / SPEAKING_RATE
            self.item.spans.append(Span(clause.text, start_ms, start_ms + length_ms))
            self.item.text += clause.text
            self._emit(events.AnswerText(self.response_id, self.item.id, clause.text))
            if not len(sound):
                continue
            self.timeline.stamp("first_audio", self._clock())
            self.played_until = max(self.played_until, self._clock()) + length_ms / 1000
            for block in blocks(sound, _BLOCK_MS * SPEAKING_RATE // 1000):
                self._emit(events.AnswerAudio(self.response_id, self.item.id, block))
            if "first_sent" not in self.timeline.stamps:
                self._sounding()
            self.timeline.stamp("first_sent", self._clock())
