"""One answer: thought, cut into clauses, spoken and sent, each stage as soon as the one before has something for it.

An answer is open or closed. Behind a closed gate it is thought and spoken on a guess, or held back while the user
speaks over it; nothing of it is sent then. `voice.session` decides when to open and close.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from voice import events
from voice.audio import SPEAKING_RATE, Samples, blocks
from voice.brain import Brain, Message, Progress
from voice.clauses import Clause, ClauseSplitter
from voice.history import Item, Span
from voice.stages import Stages
from voice.timeline import Stamp, Timeline

_log = logging.getLogger("rejoinder.voice")

_LONGEST_AHEAD_S = 30.0
"""Sound sent ahead of its playing, and sound made behind a closed gate. More would only be thrown away when the user
interrupts, and clients buffer no endless amount: our page two minutes."""

_BLOCK_MS = 100
"""Sound in one event: the first can be played at once, and a client that stops wastes little."""

_BEGIN_AGAIN_MS = 200
"""An answer that goes on says this much again: the word that was broken off."""

_NEARLY_CERTAIN = 0.95
"""A first clause is spoken ahead from the draft when every drafted token is at least so likely."""

_FIRST_SOUND_S = 0.3
"""The brain rests while the first clause is synthesized, so long at most: that one is waited for, and what follows is
not needed before it has been played."""

Status = Literal["completed", "cancelled", "incomplete", "failed"]


@dataclass(frozen=True)
class Wanted:
    """How an answer is made.

    Attributes:
        speak: aloud, or in writing.
        speed: pace of the voice.
        max_tokens: the longest answer, None for what the context leaves.
    """

    speak: bool = True
    speed: float = 1.0
    max_tokens: int | None = None


@dataclass(frozen=True)
class _Piece:
    """Words and the sound that says them, [T] at 24 kHz; none where they are written."""

    text: str
    sound: Samples

    @property
    def ms(self) -> float:
        return len(self.sound) * 1000 / SPEAKING_RATE


class Answer:
    """An answer under way, closed at first.

    Args:
        wanted: how it is made.
        timeline: stamped as the stages pass.
        emit: told everything that happens while the gate is open.
        sounding: called when the first sound has been sent.
        spawn: starts its tasks.
        clock: seconds, monotonic.

    Attributes:
        response_id, item: what it is on the wire and in the history; set by `open`.
        done: whether all of it was sent, or it was stopped.
        played_until: when the client will have played what was sent, if it plays at once.
        asked: set when the brain is asked.
        ready: set when there is something to hear or to read, or there never will be.
    """

    def __init__(
        self,
        wanted: Wanted,
        timeline: Timeline,
        stages: Stages,
        emit: Callable[[events.SessionEvent], None],
        sounding: Callable[[], None],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        clock: Callable[[], float],
    ) -> None:
        self.response_id, self.item = "", Item("", "assistant", spoken=wanted.speak)
        self.timeline = timeline
        self.done = False
        self.played_until = 0.0
        self._wanted, self._stages, self._emit, self._clock = wanted, stages, emit, clock
        self._sounding, self._spawn = sounding, spawn
        self.asked, self.ready = asyncio.Event(), asyncio.Event()
        self._open = False
        self._work: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._pieces: deque[_Piece] = deque()
        self._sent: list[_Piece] = []
        self._changed = asyncio.Event()
        self._made = self._resumed = self._heard_of = False
        self._finished: str | None = None
        self._failure: str | None = None
        self._unseen = ""
        self._ahead: tuple[Clause, asyncio.Future[Samples]] | None = None

    def think(self, brain: Brain, messages: Sequence[Message], deadline: float | None = None) -> None:
        """Begin to answer `messages`.

        Args:
            deadline: when a first clause is wanted of the brain, on `time.monotonic`.
        """
        self._work = self._spawn(self._run(brain, messages, deadline))

    def open(self, response_id: str, item: Item, not_before: float) -> asyncio.Task[None]:
        """Send what has been made, and go on sending. The task ends when all was sent, or the answer was stopped.

        Args:
            item: the conversation's item that holds the answer; it grows as text and sound are sent.
            not_before: when what was sent before will have been played.
        """
        self.response_id, self.item, self.played_until = response_id, item, not_before
        self._open, self.done = True, False
        if self._unseen:
            self._emit(events.Drafted(response_id, self._unseen, "", self.timeline.steps))
            self._unseen = ""
        self._sending = self._spawn(self._send())
        return self._sending

    def hold(self, reason: str) -> None:
        """Fall silent now: what was not heard by now is taken out of the conversation. The work goes on, and what
        comes of it waits behind the gate."""
        self._open = False
        if self._sending is not None:
            self._sending.cancel()
        unheard_ms = max(0.0, self.played_until - self._clock()) * 1000
        known = self.item.heard_ms is not None  # by the player's own count, which is better than ours
        if self.item.spoken and not known and (unheard_ms or not self.done):
            self.item.heard_ms = max(0.0, self.item.audio_ms - unheard_ms)
        self.played_until = min(self.played_until, self._clock())
        self._finish("cancelled", reason)

    def stop(self, reason: str) -> None:
        """Fall silent now, and for good."""
        if self._open:
            self.hold(reason)
        self.done = True
        for task in (self._work, self._sending):
            if task is not None:
                task.cancel()
        self.ready.set()
        self._drop_ahead()

    @property
    def begun(self) -> bool:
        """Whether it has been thought about."""
        return self._work is not None

    @property
    def unheard_ms(self) -> float:
        """How much of an answer that is held back nobody has heard: what was cut off and what has been made since."""
        heard = self.item.heard_ms
        cut = 0.0 if heard is None else max(0.0, self.item.audio_ms - heard)
        return cut + sum(piece.ms for piece in self._pieces)

    def resume(self, response_id: str, item: Item, timeline: Timeline) -> asyncio.Task[None]:
        """Go on where `hold` broke off, as another response: the first one was closed on the wire."""
        self._pieces.extendleft(reversed(self._cut_off()))
        self._sent = []
        self.timeline, self._resumed = timeline, True  # it is the answer to no turn: nothing is stamped
        return self.open(response_id, item, self._clock())

    def _cut_off(self) -> list[_Piece]:
        """What was sent and not heard."""
        heard = self.item.heard_ms
        left: list[_Piece] = []
        for piece, span in zip(self._sent, self.item.spans, strict=True):
            if heard is None or heard >= span.end_ms:
                continue
            if heard <= span.start_ms:
                left.append(piece)
                continue
            said = span.heard_until(heard)
            begin = max(0.0, heard - span.start_ms - _BEGIN_AGAIN_MS)
            left.append(_Piece(piece.text[len(said) :], piece.sound[int(begin * SPEAKING_RATE / 1000) :]))
        return left

    def _stamp(self, name: Stamp) -> None:
        if not self._resumed:
            self.timeline.stamp(name, self._clock())

    def _finish(self, status: Status, reason: str | None) -> None:
        if not self.done:
            self.done = True
            self._emit(events.AnswerDone(self.response_id, self.item, status, reason, self.timeline))

    async def _run(self, brain: Brain, messages: Sequence[Message], deadline: float | None) -> None:
        """Make the answer to the end. A failure of any stage ends the answer, not the conversation."""
        try:
            if self._wanted.speak:
                clauses: asyncio.Queue[Clause | None] = asyncio.Queue()
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._think_aloud(brain, messages, deadline, clauses))
                    group.create_task(self._speak(brain, clauses))
            else:
                await self._think(brain, messages, deadline, lambda progress: self._add(progress.committed))
        except Exception as error:
            causes = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
            if not all(isinstance(cause, ValueError) for cause in causes):
                _log.exception("an answer failed")
            self._failure = "; ".join(str(cause) or type(cause).__name__ for cause in causes)
        self._made = True
        self.ready.set()
        self._changed.set()

    async def _think(
        self, brain: Brain, messages: Sequence[Message], deadline: float | None, take: Callable[[Progress], None]
    ) -> None:
        self.asked.set()
        async for progress in brain.reply(messages, max_tokens=self._wanted.max_tokens, deadline=deadline):
            if progress.committed:
                self._stamp("first_committed")
            self.timeline.steps, self.timeline.tokens = progress.step, progress.tokens
            self.timeline.prompt_tokens, self.timeline.cached_tokens = (
                progress.prompt_tokens,
                progress.cached_tokens,
            )
            self._finished = progress.finished
            if self._open:
                self._emit(events.Drafted(self.response_id, progress.committed, progress.draft, progress.step))
            else:
                self._unseen += progress.committed
            take(progress)

    async def _think_aloud(
        self,
        brain: Brain,
        messages: Sequence[Message],
        deadline: float | None,
        clauses: asyncio.Queue[Clause | None],
    ) -> None:
        splitter = ClauseSplitter()

        def say(clause: Clause) -> None:
            self._stamp("first_clause")
            clauses.put_nowait(clause)

        def take(progress: Progress) -> None:
            for clause in splitter.push(progress.committed):
                say(clause)
            if "first_clause" not in self.timeline.stamps and min(progress.confidence, default=0.0) >= _NEARLY_CERTAIN:
                self._say_ahead(splitter.peek(progress.draft))

        await self._think(brain, messages, deadline, take)
        for clause in splitter.flush():
            say(clause)
        clauses.put_nowait(None)

    def _say_ahead(self, clause: Clause | None) -> None:
        """Speak a clause that is not final yet, but most likely will be."""
        if clause is not None and (self._ahead is None or self._ahead[0] != clause):
            self._drop_ahead()
            self._ahead = (clause, self._synthesis(clause))

    def _drop_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead[1].cancel()
            self._ahead = None
            self.timeline.drafts_dropped += 1

    def _synthesis(self, clause: Clause) -> asyncio.Future[Samples]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._stages.speaking, self._stages.voice.say, clause, self._wanted.speed)

    async def _speak(self, brain: Brain, clauses: asyncio.Queue[Clause | None]) -> None:
        first = True
        while (clause := await clauses.get()) is not None:
            while sum(piece.ms for piece in self._pieces) > _LONGEST_AHEAD_S * 1000:
                await self._change()
            if self._ahead is not None and self._ahead[0].text == clause.text:
                synthesis, self._ahead = self._ahead[1], None
                self.timeline.drafts_spoken += 1
            else:
                self._drop_ahead()
                synthesis = self._synthesis(clause)
            if first:
                brain.rest(_FIRST_SOUND_S)
            self._add(clause.text, await synthesis)
            if first:
                brain.rest(0)
            first = False

    def _add(self, text: str, sound: Samples = events.NO_SAMPLES) -> None:
        if text:
            if len(sound):
                self._stamp("first_audio")
            self._pieces.append(_Piece(text, sound))
            self.ready.set()
            self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _send(self) -> None:
        """Send the pieces as they are made; runs while the gate is open."""
        while True:
            while not self._pieces and not self._made:
                await self._change()
            if not self._pieces:
                break
            await asyncio.sleep(self.played_until - self._clock() - _LONGEST_AHEAD_S)
            self._send_piece(self._pieces.popleft())
            self._changed.set()
        if self._failure is not None:
            self._finish("failed", self._failure)
            return
        self.item.complete = True
        cut = self._finished == "length"
        self._finish("incomplete" if cut else "completed", "max_output_tokens" if cut else None)

    def _send_piece(self, piece: _Piece) -> None:
        self._sent.append(piece)
        if self._wanted.speak:
            start_ms = self.item.audio_ms
            self.item.spans.append(Span(piece.text, start_ms, start_ms + piece.ms))
        self.item.text += piece.text
        self._emit(events.AnswerText(self.response_id, self.item.id, piece.text))
        if not len(piece.sound):
            if not self._wanted.speak:
                self._stamp("first_sent")
            return
        self.played_until = max(self.played_until, self._clock()) + piece.ms / 1000
        for block in blocks(piece.sound, _BLOCK_MS * SPEAKING_RATE // 1000):
            self._emit(events.AnswerAudio(self.response_id, self.item.id, np.ascontiguousarray(block)))
        if not self._heard_of:
            self._heard_of = True
            self._sounding()
        self._stamp("first_sent")
