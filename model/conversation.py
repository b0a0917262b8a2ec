"""One conversation with the engine: it keeps what it has read, and answers.

Each request is a generator of passes; the engine's thread runs it, and what it delivers arrives on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from model.answer import Answer, Progress
from model.cache import KeyValueCache
from model.chat import Message, TextMessage
from model.decode.decoding import Decoding, write
from model.decode.denoise import Denoiser, reading_start
from model.decode.schedule import Effort, Schedule, schedule_for
from model.decode.verified import Drafting, Verifier
from model.ending import EndingReader
from model.sampling import Rule, Sampling
from model.stride import Strider
from model.transformer import PREFILL_CHUNK, reading

if TYPE_CHECKING:
    from model.batching import Job, Passes
    from model.engine import Engine

_log = logging.getLogger("rejoinder.model")

_LETTERS_PER_TOKEN = 16
"""No text has more letters to a token over any length; a longer conversation is shortened before it is encoded."""


_OWN_STEPS = 4
"""Passes of a block at most with an adapter of our own: more make nothing better (docs/benchmarks.md, passes)."""


class PromptTooLong(ValueError):
    """The newest message and the instructions alone do not fit into the context."""


@dataclass(frozen=True)
class _Options:
    """What a request asks for."""

    max_tokens: int | None
    deadline: float | None
    schedule: Schedule


class Conversation:
    """One conversation: it keeps what it has read, so that each turn only new tokens are read.

    At most one request runs at a time; a new one takes the place of the one under way.
    """

    def __init__(self, engine: Engine, *, drafting: bool = True) -> None:
        self._engine, self._drafting = engine, drafting
        self._cache = engine.model.decoder.new_cache()
        self._origin: KeyValueCache | None = None
        self._job: Job | None = None
        self._left_out = 0
        self._ending = EndingReader(engine)

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        max_tokens: int | None = None,
        sampling: Sampling | None = None,
        deadline: float | None = None,
        effort: Effort | None = None,
        max_steps: int | None = None,
    ) -> AsyncIterator[Progress]:
        """Answer the conversation so far, yielding progress after every step.

        Leaving the iterator early cancels the reply. When the conversation has outgrown the context, its oldest
        turns are left out; the instructions and the newest message never are.

        Args:
            messages: the conversation, instructions first.
            tools: functions that may be called, in the chat template's form.
            max_tokens: the longest answer; what the context leaves when not given.
            sampling: the engine's own when not given.
            deadline: when a speakable clause is wanted, on `time.monotonic`: blocks are given fewer passes until it
                is ready. Verified decoding gives up nothing for it.
            effort: how sure a token must be in block denoising; the engine's own when neither it nor `max_steps` is
                given. Verified decoding is always as good as the model.
            max_steps: passes of a block at most, in place of the effort's own.

        Raises:
            PromptTooLong: the newest message does not fit.
            ValueError: the template refuses the conversation, or `max_tokens` or `max_steps` is out of range.
        """
        loop = asyncio.get_running_loop()
        arrivals: asyncio.Queue[Progress | Exception | None] = asyncio.Queue()

        def deliver(item: Progress | Exception | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrivals.put_nowait, item)

        if max_tokens is not None and max_tokens < 1:
            raise ValueError(f"max_tokens is {max_tokens} and must be 1 or more")
        schedule = self._engine.schedule
        if effort is not None or max_steps is not None:
            usual = schedule
            schedule = schedule_for(effort or "medium", max_steps, usual.rule, usual.in_flight, usual.edit)
        options = _Options(max_tokens, deadline, schedule)
        passes = self._passes(list(messages), tools, options, sampling or self._engine.sampling, deliver)
        job = self._start(passes, deliver, lambda: deliver(None))
        try:
            while (item := await arrivals.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            job.cancelled.set()

    def prepare(self, messages: Sequence[Message]) -> None:
        """Read ahead: fill the cache with `messages` while the user still speaks. Returns at once.

        A conversation that does not fit, or that the template refuses, is left to `reply` to report.
        """

        def passes() -> Passes:
            ids, _ = self._encode(list(messages), (), answer=False)
            denoising = self._engine.denoising
            until = len(ids) if denoising is None else reading_start(denoising, ids)
            ids = ids[: min(until, self._engine.context)]
            self._keep(ids)
            yield from self._read_instructions(messages, (), ids)
            yield from self._read(ids)

        self._start(passes(), lambda error: _log.debug("reading ahead failed: %s", error), lambda: None)

    async def ends(self, text: str) -> float | None:
        """How likely it is that `text`, what the user has said so far, is a complete turn: 0 to 1, from its last 40
        words alone, whatever punctuation it has. It neither cancels nor delays the request under way.

        None when that is not known: no classifier was trained for these weights, the pass failed, or a newer question
        took this one's place.
        """
        return await self._ending.ends(text)

    def rest(self, seconds: float) -> None:
        """Take no step for so long, or go on at once (0)."""
        if self._job is not None:
            self._engine.rest(self._job, seconds)

    def cancel(self) -> None:
        """Drop the request under way; takes effect between two passes and leaves the cache usable."""
        if self._job is not None:
            self._job.cancelled.set()

    def fork(self) -> Conversation:
        """A conversation that begins with what this one has read when its first request runs, and goes its own way;
        drop it, and nothing was changed."""
        twin = Conversation(self._engine, drafting=self._drafting)
        twin._origin, twin._left_out = self._cache, self._left_out
        return twin

    @property
    def cached_tokens(self) -> int:
        """Tokens that need not be read again."""
        return len(self._cache.tokens)

    def _start(self, passes: Passes, fail: Callable[[Exception], None], done: Callable[[], None]) -> Job:
        self.cancel()
        self._job = self._engine.submit(passes, fail, done)
        return self._job

    def _passes(
        self,
        messages: list[Message],
        tools: Sequence[Mapping[str, Any]],
        options: _Options,
        sampling: Sampling,
        deliver: Callable[[Progress], None],
    ) -> Passes:
        """Read what is new of the prompt, then draft and verify until the answer ends."""
        engine = self._engine
        ids, limit = self._encode(messages, tools, answer=True)
        budget = limit if options.max_tokens is None else min(limit, options.max_tokens)
        rule, denoising = Rule(sampling, sampling.generator()), engine.denoising
        # In verified decoding the last token is read again: its logits are wanted.
        start = len(ids) - 1 if denoising is None else reading_start(denoising, ids)
        cached = self._keep(ids[:start])

        said = 0

        def told(progress: Progress) -> None:
            nonlocal said
            if progress.tokens > said:
                said = progress.tokens
                engine.committed()
            deliver(progress)

        answer = Answer(engine.model.tokenizer, engine.model.stop_tokens, budget, len(ids), cached, told)
        yield from self._read_instructions(messages, tools, ids[:start])
        if denoising is None:  # the rest is read by the pass that says the first token
            start = len(self._cache.tokens) + (start - len(self._cache.tokens)) // PREFILL_CHUNK * PREFILL_CHUNK
        yield from self._read(ids[:start])
        context = engine.model.decoder.config.context_length
        decoding: Decoding
        if denoising is None:
            decoding = Verifier(self._cache, ids, self._drafts, rule, context, engine.pace, self._stride)
        else:
            # What a family brings for drafting is not for its own denoising.
            gated = engine.model.adapter is not None and engine.model.decoder.config.denoising is None
            schedule = options.schedule
            if gated:
                schedule = replace(schedule, max_steps=min(schedule.max_steps, _OWN_STEPS))
            decoding = Denoiser(
                self._cache, ids, denoising, schedule, rule, answer, context, gated=gated, deadline=options.deadline
            )
        yield from write(decoding, answer)

    def _instructions(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], ids: list[int]) -> int:
        """How many of the first tokens are instructions and tools, which other conversations may begin with, too."""
        leading = list(messages[: _leading(messages)])
        if tools and not leading:
            leading = [TextMessage("user", "")]  # what the template says about tools stands before what users say
        try:
            alone = self._engine.model.template.encode(leading, tools=tools, answer=False) if leading else []
        except ValueError:
            return 0  # some templates refuse a conversation in which no user speaks
        pairs = zip(alone, ids, strict=False)
        count = next((n for n, (one, other) in enumerate(pairs) if one != other), len(alone))
        return min(count, len(ids)) // self._engine.block * self._engine.block

    def _stride(self) -> Strider | None:
        return self._engine.stride(self._drafting)

    def _drafts(self) -> Drafting:
        return self._engine.drafting() if self._drafting else Drafting()

    def _keep(self, ids: list[int]) -> int:
        """Forget what does not begin `ids`; returns how many tokens are left. Keys of a family whose blocks see
        themselves whole hold for whole blocks only."""
        if self._origin is not None:
            self._cache, self._origin = self._origin.fork(), None
        self._engine.prefixes.lend(self._cache, ids)
        common = self._cache.keep_common(ids)
        if self._engine.attention == "block":
            self._cache.truncate(common // self._engine.block * self._engine.block)
        return len(self._cache.tokens)

    def _read_instructions(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], ids: list[int]
    ) -> Passes:
        """Read instructions and tools, where the cache does not hold them yet, and keep them for others. By themselves,
        so that a text is read alike whether its instructions were read here or lent."""
        leading = self._instructions(messages, tools, ids)
        if len(self._cache.tokens) < leading:
            yield from self._read(ids[:leading])
        self._engine.prefixes.keep(self._cache, leading)

    def _read(self, ids: list[int]) -> Passes:
        """Bring the cache to hold exactly `ids`, a chunk a pass, or by what others have read of them meanwhile."""
        self._keep(ids)
        engine, cache = self._engine, self._cache
        yield from reading(cache, ids, engine.attention, engine.block, lambda: engine.prefixes.lend(cache, ids))

    def _encode(
        self, messages: list[Message], tools: Sequence[Mapping[str, Any]], *, answer: bool
    ) -> tuple[list[int], int]:
        """Token ids of the prompt, and how many tokens the context leaves for an answer. What was left out of one
        prompt stays out of the next, so that the cache can be kept."""
        engine = self._engine
        if self._left_out >= _droppable(messages):
            self._left_out = 0  # another, shorter conversation
        letters = engine.context * _LETTERS_PER_TOKEN
        while _droppable(messages) > self._left_out and _letters(_shortened(messages, self._left_out)) > letters:
            self._left_out += 1  # it cannot fit: not worth encoding
        while True:
            kept = _shortened(messages, self._left_out)
            ids = engine.model.template.encode(kept, tools=tools, answer=answer)
            left = engine.context - len(ids)
            if left >= engine.context // 8:  # room for an answer of some length
                return ids, left
            more = _droppable(messages) - self._left_out
            if more == 0:
                if left > 0:
                    return ids, left
                raise PromptTooLong(
                    f"the conversation's newest message needs {len(ids)} tokens with the instructions, and the "
                    f"context holds {engine.context}: shorten the message or the instructions"
                )
            # Half of the rest at once, so that this does not happen again at the next turn.
            self._left_out += (more + 1) // 2
            _log.info("a conversation has outgrown %d tokens: %d messages are left out", engine.context, self._left_out)


def _leading(messages: Sequence[Message]) -> int:
    """How many messages at the beginning are instructions, which are never left out."""
    return next((n for n, message in enumerate(messages) if message.role != "system"), len(messages))


def _droppable(messages: list[Message]) -> int:
    """How many messages may be left out: all but the instructions and the newest."""
    return max(0, len(messages) - _leading(messages) - 1)


def _shortened(messages: list[Message], left_out: int) -> list[Message]:
    """The conversation without the oldest `left_out` messages behind its instructions."""
    leading = _leading(messages)
    return messages[:leading] + messages[leading + left_out :]


def _letters(messages: list[Message]) -> int:
    return sum(len(message.content) for message in messages)
