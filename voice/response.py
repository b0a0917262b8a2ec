"""One response: generated, split into clauses, synthesized and sent, each step as soon as it has input.

A response is buffered until it is released, and again while it is paused because the user speaks over it; nothing is
sent then. `voice.session` decides when to release, pause and stop it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Literal

import numpy as np

from agent.language_model import RemoteRequest, Source
from agent.plan import Call, Decision, Say
from agent.planner import Planner
from agent.tool_runs import ToolRuns
from chat.progress import Progress
from chat.types import Ask, Message
from voice import events
from voice.audio.codec import OUTPUT_RATE
from voice.chunks import Chunk, unheard_chunks
from voice.clause_pace import ClausePace
from voice.clauses import Clause, ClauseSplitter
from voice.context import SessionContext
from voice.function_calls import FunctionCalls
from voice.history import FunctionCall, History, Item, Span, new_id
from voice.lexicon import NO_LEXICON, Lexicon
from voice.manner import SpeakingManner
from voice.response_options import ResponseOptions
from voice.speech_times import NO_SPEECH, Speech
from voice.turn_metrics import Stamp, TurnMetrics

_log = logging.getLogger("rejoinder.voice")

_MAX_AHEAD_S = 30.0
"""Audio sent ahead of its playback, and audio synthesized while the response is buffered. More would only be discarded
when the user interrupts, and clients' buffers are bounded: our page's holds two minutes."""

_BLOCK = OUTPUT_RATE // 10
"""Samples in one event, 100 ms: the first can be played at once, and a client that stops discards little."""

_NEARLY_CERTAIN = 0.95
"""The first clause is synthesized from the draft when all its drafted tokens are right with this probability."""

_MAX_PAUSE_S = 0.3
"""The language model pauses for at most this long while a clause is synthesized that the user waits for: the first, and
on a busy machine others."""

_SOON_S = 0.4
"""A later clause is waited for when everything before it will have been played so soon."""

_MAX_STEPS = 6
"""Times that one response may ask the language model. The last one may call nothing."""

_OWN_MANNER = SpeakingManner()

Status = Literal["completed", "cancelled", "incomplete", "failed"]

_OnText = Callable[[str, Progress | None], None]
"""Called with new text, and with the progress that brought it, if the language model wrote it."""


class Response:
    """One response, buffered at first.

    Args:
        metrics: stamped as each step begins.
        pace: of the conversation's clauses; updated.
        on_first_sent: called when the first audio, or written text, has been sent.
        tool_runs: runs the conversation's tools; None if there are none.
        text: what the response says; empty if the language model decides.
        manner: how it speaks.

    Attributes:
        manner: how it speaks, which the user may ask to change. The responses after it speak in the same manner.
        options: its tools may change until `generate`.
        response_id: its id on the wire; set by `release`.
        item: its message, which becomes part of the conversation when there is text to send.
        items: the message and the function calls that have been sent.
        done: whether all of it was sent, or it was stopped.
        played_until: when the client will have played what was sent, if it plays at once.
        requested: set when the language model has the request.
        ready: set when there is something to hear or to read, or never will be.
    """

    def __init__(
        self,
        context: SessionContext,
        options: ResponseOptions,
        metrics: TurnMetrics,
        pace: ClausePace,
        on_first_sent: Callable[[], None] = lambda: None,
        tool_runs: ToolRuns | None = None,
        text: str = "",
        manner: SpeakingManner = _OWN_MANNER,
    ) -> None:
        self.response_id, self.item = "", self._new_message(options)
        self.items: list[Item | FunctionCall] = []
        self.metrics = metrics
        self.done = False
        self.played_until = 0.0
        self.options, self._pace, self._on_first_sent = options, pace, on_first_sent
        self._speech_models, self._emit = context.speech_models, context.emit
        self._spawn, self._clock = context.spawn, context.clock
        self._paused_s = 0.0
        self.requested, self.ready = asyncio.Event(), asyncio.Event()
        self._released = asyncio.Event()
        self._work: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._chunks: deque[Chunk] = deque()
        self._sent: list[Chunk] = []
        self._changed = asyncio.Event()
        self._generated = self._resumed = self._begun = self._apologized = False
        self._has_text = self._text_first = self._message_started = False
        self._finish_reason: str | None = None
        self._error: str | None = None
        self._unreported_text = ""
        self._early_clause: tuple[Clause, asyncio.Future[Speech]] | None = None
        self._history: History | None = None
        self._sources: tuple[Source, ...] = ()
        self._text, self.manner = text, manner
        self._learned = NO_LEXICON
        self._calls = FunctionCalls(context, self._start_item, tool_runs)

    def generate(self, planner: Planner, messages: Sequence[Message], deadline: float | None = None) -> None:
        """Start to generate the response to `messages`.

        Args:
            deadline: when the first clause is needed, on `time.monotonic`.
        """
        self._work = self._spawn(self._run(planner, messages, deadline))

    def fail(self, reason: str) -> None:
        """It cannot be generated."""
        self._error, self._generated = reason, True
        self.ready.set()
        self._changed.set()

    def release(self, response_id: str, history: History | None, not_before: float) -> asyncio.Task[None]:
        """Send what is buffered, then the rest as it is generated. The task ends when all of it was sent, or the
        response was stopped.

        Args:
            history: the conversation that the response's items join; None if they are not part of one.
            not_before: when the audio of earlier responses will have been played.
        """
        self.response_id, self.item, self.items = response_id, self._new_message(self.options), []
        self.played_until, self._history = not_before, history
        self.done, self._message_started = False, False
        self._released.set()
        if self._unreported_text:
            self._emit(events.ResponseDraft(response_id, self._unreported_text, self.metrics.steps))
            self._unreported_text = ""
        self._send_calls()
        self._sending = self._spawn(self._send())
        return self._sending

    def pause(self, reason: str) -> None:
        """Fall silent now, and remove from the conversation what the user has not heard. Generation continues; its
        output is buffered."""
        self._released.clear()
        if self._sending is not None:
            self._sending.cancel()
        unheard_ms = max(0.0, self.played_until - self._clock()) * 1000
        client_reported = self.item.heard_ms is not None  # the player's own count is better than our estimate
        if self.item.spoken and not client_reported and (unheard_ms or not self.done):
            self.item.heard_ms = max(0.0, self.item.audio_ms - unheard_ms)
        self.played_until = min(self.played_until, self._clock())
        self._finish("cancelled", reason)

    def stop(self, reason: str) -> None:
        """Fall silent now, for good."""
        if self._released.is_set():
            self.pause(reason)
        self.done = True
        self._calls.leave()
        for task in (self._work, self._sending):
            if task is not None:
                task.cancel()
        self.ready.set()
        self._drop_early_clause()

    @property
    def started(self) -> bool:
        """Whether generation has started."""
        return self._work is not None

    @property
    def unheard_ms(self) -> float:
        """How much of a paused response the user has not heard: what was cut off, and what was synthesized since."""
        heard_ms = self.item.heard_ms
        cut_off_ms = 0.0 if heard_ms is None else max(0.0, self.item.audio_ms - heard_ms)
        return cut_off_ms + sum(chunk.ms for chunk in self._chunks)

    def resume(self, response_id: str, history: History, metrics: TurnMetrics) -> asyncio.Task[None]:
        """Continue where `pause` interrupted, as another response: the first one was closed on the wire."""
        self._chunks.extendleft(reversed(unheard_chunks(self._sent, self.item)))
        self._sent = []
        self.metrics, self._resumed = metrics, True  # it answers no turn of its own, so nothing is stamped
        return self.release(response_id, history, self._clock())

    @staticmethod
    def _new_message(options: ResponseOptions) -> Item:
        return Item(new_id("item"), "assistant", spoken=options.speak)

    def _stamp(self, name: Stamp) -> None:
        if not self._resumed:
            self.metrics.stamp(name, self._clock())

    def _finish(self, status: Status, reason: str | None) -> None:
        if self.done:
            return
        self.done = True
        outputs = self._calls.cancel(self.response_id)
        self.metrics.tools = self._calls.steps
        items = tuple(self.items)
        self._emit(events.ResponseDone(self.response_id, self.item, items, status, reason, self.metrics))
        if self._history is not None:
            for output in outputs:
                self._emit(events.ItemAdded(output, self._history.add(output)))

    async def _run(self, planner: Planner, messages: Sequence[Message], deadline: float | None) -> None:
        """Generate the whole response. A failure of any model ends the response, not the conversation."""
        try:
            if self.options.speak:
                clauses: asyncio.Queue[Clause | None] = asyncio.Queue()
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._generate_clauses(planner, messages, deadline, clauses))
                    group.create_task(self._synthesize_clauses(planner, clauses))
            else:
                await self._generate(planner, messages, deadline, lambda text, _: self._add_chunk(text))
        except Exception as error:
            causes = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
            if not all(isinstance(cause, ValueError) for cause in causes):
                _log.exception("a response failed", extra={"turn_id": self.metrics.turn_id})
            self._error = "; ".join(str(cause) or type(cause).__name__ for cause in causes)
        self._generated = True
        self.ready.set()
        self._changed.set()

    async def _generate(
        self, planner: Planner, messages: Sequence[Message], deadline: float | None, on_text: _OnText
    ) -> None:
        """Generate in steps: the planner says something, or calls tools, whose outputs the next step reads."""
        self.requested.set()
        taught = planner.pronunciations
        self._learned = Lexicon.learned(messages, taught)
        if self._text:
            self._take_text(self._text, on_text)
            return
        prompt = list(messages)
        for number in range(1, _MAX_STEPS + 1):
            self._calls.begin_step(prompt, self.options.tools)
            ask = self.options.ask(prompt, deadline, first=number == 1, last=number == _MAX_STEPS)
            text = await self._step(planner, ask, on_text, first=number == 1)
            self._calls.read_ahead(planner, self.options, text.strip())
            say = (lambda text: self._take_text(text, on_text)) if self.options.speak else None
            outputs = await self._calls.wait(self._released, say)
            if outputs is None:
                return
            prompt = [*prompt, *outputs]
            self._learned = Lexicon.learned(prompt, taught)

    async def _step(self, planner: Planner, ask: Ask, on_text: _OnText, *, first: bool) -> str:
        """One step of the planner. Returns the text that a language model has written."""
        text, before = "", replace(self.metrics)
        steps = planner.respond(ask, first=first, remote_leads=self.metrics.remote_leads)
        async with aclosing(steps):  # type: ignore[type-var]
            async for step in steps:
                if isinstance(step, Decision):
                    before = replace(self.metrics)
                    self._take_decision(step, on_text)
                elif isinstance(step, RemoteRequest):
                    await self._allow(step)
                else:
                    self._take_progress(step, before, on_text)
                    text += step.committed
        return text

    def _take_decision(self, decision: Decision, on_text: _OnText) -> None:
        """Take what is decided: what a language model says to it follows."""
        self.metrics.decided.append(decision)
        self._sources = () if decision.grounding is None else decision.grounding.sources
        if self._sources:
            self._learned = Lexicon.respelled([source.text for source in self._sources]).including(self._learned)
        match decision.do:
            case Say(text=text, manner=manner):
                if manner is not None:
                    self.manner = self.manner.changed(manner)
                self._take_text(text, on_text)
            case Call(calls=calls):
                for call in calls:
                    self._calls.add_made(call)
                self._on_calls()

    def _take_progress(self, progress: Progress, before: TurnMetrics, on_text: _OnText) -> None:
        self.metrics.count(progress, before)
        self._finish_reason = progress.finished
        self._take_text(progress.committed, on_text, progress)
        if progress.tool_calls:
            self._text_first = self._has_text if not self._calls else self._text_first
            for delta in progress.tool_calls:
                self._calls.add(delta)
            self._on_calls()

    async def _allow(self, request: RemoteRequest) -> None:
        """Words may leave the machine once the response is released: nothing that is only a guess ever does."""
        self.ready.set()
        await self._released.wait()
        self.metrics.remote.append(request)
        self._emit(events.WordsSent(self.response_id, request))

    def _take_text(self, committed: str, on_text: _OnText, progress: Progress | None = None) -> None:
        """Take more of the text: from the language model, or ready-made."""
        if committed:
            self._stamp("first_committed")
            self._has_text = self._has_text or not committed.isspace()
        if self._released.is_set():
            steps, p = self.metrics.steps, progress
            drafted = () if p is None else (p.draft, p.confidence, p.draft_origin, p.denoised)
            self._emit(events.ResponseDraft(self.response_id, committed, steps, *drafted))
        else:
            self._unreported_text += committed
        on_text(committed, progress)

    def _on_calls(self) -> None:
        if self._calls.need_release:
            self.ready.set()
        if self._released.is_set():
            self._send_calls()

    def _send_calls(self) -> None:
        if self._text_first and self._calls.has_unsent:
            self._start_message()
        self._calls.send(self.response_id, self._history)

    async def _generate_clauses(
        self,
        planner: Planner,
        messages: Sequence[Message],
        deadline: float | None,
        clauses: asyncio.Queue[Clause | None],
    ) -> None:
        splitter, previous = ClauseSplitter(self._pace), self._clock()

        def queue_clause(clause: Clause, *, generated: bool = True) -> None:
            nonlocal previous
            self._stamp("first_clause")
            clauses.put_nowait(clause)
            if not generated:
                return
            now, start = self._clock(), max(previous, self.metrics.stamps.get("first_committed", previous))
            self._pace.add_generation(clause.num_words, max(0.0, now - start - self._paused_s))
            previous, self._paused_s = now, 0.0

        def on_text(committed: str, progress: Progress | None) -> None:
            nonlocal previous
            if progress is None:
                previous = math.inf  # what the language model writes next starts a count of its own
            elif committed:
                previous = min(previous, self._clock())
            for clause in splitter.push(committed):
                queue_clause(clause, generated=progress is not None)
            if progress is not None and progress.draft and "first_clause" not in self.metrics.stamps:
                drafted, chance = splitter.peek(progress.draft, progress.draft_ends, progress.confidence)
                if drafted is not None and chance >= _NEARLY_CERTAIN:
                    self._synthesize_early(drafted)

        await self._generate(planner, messages, deadline, on_text)
        for clause in splitter.flush():
            queue_clause(clause, generated=previous < math.inf)
        clauses.put_nowait(None)

    def _synthesize_early(self, clause: Clause) -> None:
        """Start to synthesize a clause of the draft, which is not final yet but most likely will be."""
        if self._early_clause is None or self._early_clause[0] != clause:
            self._drop_early_clause()
            self._early_clause = (clause, self._synthesize(clause))

    def _drop_early_clause(self) -> None:
        if self._early_clause is not None:
            self._early_clause[1].cancel()
            self._early_clause = None
            self.metrics.drafts_dropped += 1

    def _synthesize(self, clause: Clause) -> asyncio.Future[Speech]:
        loop, models, manner, learned = asyncio.get_running_loop(), self._speech_models, self.manner, self._learned
        voice, speed = models.voices.find(self.options.voice), manner.speed_of(self.options.speed)

        def speak() -> Speech:
            speech = voice.speak(clause, speed, learned)
            return replace(speech, audio=manner.amplified(speech.audio))

        return loop.run_in_executor(models.synthesis_executor, speak)

    async def _synthesize_clauses(self, planner: Planner, clauses: asyncio.Queue[Clause | None]) -> None:
        first = True
        while (clause := await clauses.get()) is not None:
            while sum(chunk.ms for chunk in self._chunks) > _MAX_AHEAD_S * 1000:
                await self._wait_for_change()
            if self._early_clause is not None and self._early_clause[0].text == clause.text:
                synthesis, self._early_clause = self._early_clause[1], None
                self.metrics.drafts_spoken += 1
            else:
                self._drop_early_clause()
                synthesis = self._synthesize(clause)
            waited_for = first or (self._released.is_set() and self.played_until - self._clock() < _SOON_S)
            if waited_for:
                planner.pause(_MAX_PAUSE_S)
            start, begun_early = self._clock(), synthesis.done()
            speech = await synthesis
            seconds = self._clock() - start
            if not begun_early:
                self._pace.add_synthesis(clause.num_words, seconds, speech.ms / 1000)
            self._add_chunk(clause.text, speech)
            if waited_for:
                planner.pause(0)
                self._paused_s += min(seconds, _MAX_PAUSE_S)
            first = False

    def _add_chunk(self, text: str, speech: Speech = NO_SPEECH) -> None:
        if text:
            if speech.ms:
                self._stamp("first_audio")
            self._chunks.append(Chunk(text, speech))
            self.ready.set()
            self._changed.set()

    def _start_message(self) -> None:
        if not self._message_started:
            self._message_started = True
            self._start_item(self.item)
            if self._sources:
                self._emit(events.ResponseSources(self.response_id, self.item.id, self._sources))

    def _start_item(self, item: Item | FunctionCall) -> None:
        self.items.append(item)
        previous = self._history.add(item) if self._history is not None else None
        self._emit(events.ResponseItemStarted(self.response_id, item, previous))

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _send(self) -> None:
        """Send the chunks as they arrive, while the response is released."""
        while True:
            while not self._chunks and not self._generated:
                await self._wait_for_change()
            if not self._chunks:
                break
            await asyncio.sleep(self.played_until - self._clock() - _MAX_AHEAD_S)
            self._send_chunk(self._chunks.popleft())
            self._changed.set()
        if self._error is not None:
            self._calls.leave()
            self._apologize()
            self._finish("failed", self._error)
            return
        if not self._calls:
            self._start_message()  # an empty one, if nothing was generated
        self.item.complete = True
        cut = self._finish_reason == "length"
        self._finish("incomplete" if cut else "completed", "max_output_tokens" if cut else None)

    def _apologize(self) -> None:
        """Tell the user once that the response failed, with a recording: the voice may be what failed."""
        apology, self._apologized = None if self._apologized else self._speech_models.apology, True
        if apology is not None and self.options.speak and self._history is not None:
            self._send_chunk(apology)

    def _send_chunk(self, chunk: Chunk) -> None:
        self._start_message()
        self._sent.append(chunk)
        audio, times, start_ms = chunk.speech.audio, chunk.speech.times, self.item.audio_ms
        if self.options.speak:
            word_ends = tuple(math.ceil(word.end_ms) for word in times.words)
            self.item.spans.append(Span(chunk.text, start_ms, start_ms + chunk.ms, word_ends))
        self.item.text += chunk.text
        self._emit(events.ResponseText(self.response_id, self.item.id, chunk.text))
        if chunk.ms:
            self._emit(events.ResponseTimes(self.response_id, self.item.id, times.later(start_ms)))
            self.played_until = max(self.played_until, self._clock()) + chunk.ms / 1000
            for block in np.split(audio, range(_BLOCK, len(audio), _BLOCK)):
                self._emit(events.ResponseAudio(self.response_id, self.item.id, np.ascontiguousarray(block)))
        elif self.options.speak:
            return
        if not self._begun:
            self._begun = True
            self._on_first_sent()
        self._stamp("first_sent")
