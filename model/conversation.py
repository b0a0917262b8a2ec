"""One conversation with the engine: it keeps what it has read, drafts and verifies, and reports progress.

Each request is a generator of passes; the engine's thread runs it, and what it delivers arrives on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from model.chat import Message
from model.decode.verify import Draft, LookUp, Pass, Rule, settle
from model.sampling import Sampling
from model.transformer import causal_rows

if TYPE_CHECKING:
    from model.engine import Engine, Job, Passes

_log = logging.getLogger("rejoinder.model")

PREFILL_CHUNK = 64
"""Tokens read in one pass. On two CPU cores such a pass takes about as long as two or three single tokens, which
is the longest that another conversation has to wait for its next word."""

_COPIED = 8
"""Tokens that are copied from the conversation at a time, where its newest words stood before: a pass with nine rows
takes hardly longer than one with a single row."""

_LETTERS_PER_TOKEN = 16
"""No text has more letters to a token over any length; a longer conversation is shortened before it is encoded."""


class PromptTooLong(ValueError):
    """The newest message and the instructions alone do not fit into the context."""


@dataclass(frozen=True)
class Progress:
    """What one denoising step changed.

    Attributes:
        committed: text that is final now, to be put behind all that was committed before.
        draft: text that may follow and may still change.
        step: forward passes of this reply so far, reading the prompt not counted.
        tokens: tokens committed so far.
        finished: why the reply ended, on its last progress only.
        prompt_tokens, cached_tokens: length of the prompt, and how much of it was in the cache already.
        confidence: probability of each token of the draft.
    """

    committed: str
    draft: str
    step: int
    tokens: int
    finished: Literal["stop", "length"] | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    confidence: tuple[float, ...] = ()


class Conversation:
    """One conversation: it keeps what it has read, so that each turn only new tokens are read.

    At most one request runs at a time; a new one takes the place of the one under way.
    """

    def __init__(self, engine: Engine, *, drafting: bool = True) -> None:
        self._engine, self._drafting = engine, drafting
        self._cache = engine.model.decoder.new_cache()
        self._job: Job | None = None
        self._left_out = 0

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        max_tokens: int | None = None,
        sampling: Sampling | None = None,
        deadline: float | None = None,
    ) -> AsyncIterator[Progress]:
        """Answer the conversation so far, yielding progress after every step.

        Leaving the iterator early cancels the reply. When the conversation has outgrown the context, its oldest
        turns are left out; the instructions and the newest message never are.

        Args:
            messages: the conversation, instructions first.
            tools: functions that may be called, in the chat template's form.
            max_tokens: the longest answer; what the context leaves when not given.
            sampling: the engine's own when not given.
            deadline: when a speakable clause is wanted, on `time.monotonic`. Verified decoding gives up nothing
                for it, so it is not read.

        Raises:
            PromptTooLong: the newest message does not fit.
            ValueError: the template refuses the conversation.
        """
        loop = asyncio.get_running_loop()
        arrivals: asyncio.Queue[Progress | Exception | None] = asyncio.Queue()

        def deliver(item: Progress | Exception | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrivals.put_nowait, item)

        passes = self._passes(list(messages), tools, max_tokens, sampling or self._engine.sampling, deliver)
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
            yield from self._read(ids[: self._engine.context])

        self._start(passes(), lambda error: _log.debug("reading ahead failed: %s", error), lambda: None)

    def cancel(self) -> None:
        """Drop the request under way; takes effect between two passes and leaves the cache usable."""
        if self._job is not None:
            self._job.cancelled.set()

    def fork(self) -> Conversation:
        """A conversation that has read what this one has and goes its own way; drop it, and nothing was changed.
        Only while no request of this one is under way."""
        twin = Conversation(self._engine, drafting=self._drafting)
        twin._cache, twin._left_out = self._cache.fork(), self._left_out
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
        max_tokens: int | None,
        sampling: Sampling,
        deliver: Callable[[Progress], None],
    ) -> Passes:
        """Read what is new of the prompt, then draft and verify until the answer ends."""
        model = self._engine.model
        ids, limit = self._encode(messages, tools, answer=True)
        budget = min(limit, max_tokens or limit)
        cached = self._cache.keep_common(ids[:-1])  # the last token is read again: its logits are wanted
        yield from self._read(ids[:-1])
        rule, text, lookup = Rule(sampling, sampling.generator()), model.tokenizer.stream(), LookUp(ids)
        last, draft, said, step = ids[-1], Draft(), 0, 0
        while True:
            ahead = self._plan(last, draft, lookup)
            outcome = settle(ahead, (yield ahead.rows(self._cache)), rule)
            step += 1
            committed = outcome.committed[: budget - said]
            stop = next((n for n, token in enumerate(committed) if token in model.stop_tokens), None)
            spoken = committed if stop is None else committed[:stop]
            held = outcome.kept[: len(spoken) + 1]
            self._cache.keep(held, [last, *spoken][: len(held)])
            said += len(spoken) + (stop is not None)
            finished: Literal["stop", "length"] | None = "stop" if stop is not None else None
            if finished is None and said == budget:
                finished = "length"
            last, draft = committed[-1], outcome.draft if finished is None else Draft()
            words, maybe = "".join(map(text.push, spoken)), model.tokenizer.decode(draft.tokens)
            deliver(Progress(words, maybe, step, said, finished, len(ids), cached, draft.confidence))
            if finished is not None:
                return
            lookup.extend(spoken)

    def _plan(self, last: int, draft: Draft, lookup: LookUp) -> Pass:
        """The next pass, with as many drafts as fit in front of the model's last position."""
        if not self._drafting:
            return Pass(last)
        model = self._engine.model
        left = model.decoder.config.context_length - len(self._cache.tokens) - 1
        if draft.tokens[left:]:
            draft = Draft()
        slots = min(model.adapter.slots, left - len(draft.tokens)) if model.adapter else 0
        return Pass(last, draft, lookup.find(min(_COPIED, left)), max(slots, 0))

    def _read(self, ids: list[int]) -> Passes:
        """Bring the cache to hold exactly `ids`, a chunk a pass."""
        for start in range(self._cache.keep_common(ids), len(ids), PREFILL_CHUNK):
            chunk = ids[start : start + PREFILL_CHUNK]
            yield causal_rows(self._cache, chunk, 0)
            self._cache.commit(chunk)

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


def _leading(messages: list[Message]) -> int:
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
