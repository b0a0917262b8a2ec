"""The engine: one thread that owns the model, and conversations that ask it for replies.

Every request is a generator that yields after each forward pass; the thread gives each active request one pass in
turn. So a request can be dropped between any two passes, and a long one never holds up a short one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from model.chat import CHATML, ChatTemplate, Message
from model.gguf_file import BadModelFile
from model.linear import int8_runs_here
from model.sampling import Sampling, choose
from model.tokenizer import TextTokenizer
from model.transformer import Decoder, Precision
from model.weights import open_checkpoint

_log = logging.getLogger("rejoinder.model")

PREFILL_CHUNK = 64
"""Tokens read in one pass. On two CPU cores such a pass takes about as long as two or three single tokens, which
is the longest that another conversation has to wait for its next word."""

DEFAULT_CONTEXT = 4096
"""Tokens that a conversation may span, unless the model was trained on fewer. A spoken turn is about 60 tokens, and
the fp32 cache of the 0.5B takes 24 kB a token: an hour's talk in 100 MB."""


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
    """

    committed: str
    draft: str
    step: int
    tokens: int
    finished: Literal["stop", "length"] | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True)
class LoadedModel:
    """Everything that an engine runs.

    Attributes:
        stop_tokens: ids that end a reply.
    """

    decoder: Decoder
    tokenizer: TextTokenizer
    template: ChatTemplate
    stop_tokens: frozenset[int]


def load_model(path: Path, *, device: str = "auto", precision: Precision | None = None) -> LoadedModel:
    """Open a GGUF file or a safetensors folder.

    Args:
        device: `auto` (a GPU when there is one), `cpu`, `cuda`, `cuda:1`, …
        precision: int8 on the CPU and bfloat16 elsewhere when not given.

    Raises:
        BadModelFile: the model cannot be read.
        ValueError: the device is not there, or too small.
    """
    where = _device(device)
    default: Precision = "bfloat16" if where.type == "cuda" else "int8" if int8_runs_here() else "float32"
    try:
        checkpoint = open_checkpoint(path)
        decoder = Decoder(checkpoint, where, precision or default)
        tokenizer = checkpoint.tokenizer()
        template = ChatTemplate(checkpoint.chat_template() or CHATML, tokenizer, checkpoint.template_tokens())
    except (RuntimeError, KeyError, TypeError, ArithmeticError, IndexError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise ValueError(f"{path.name} does not fit into the memory of {where}: choose a smaller model") from None
        raise BadModelFile(f"{path} is not a model that can be run ({type(error).__name__}: {error})") from error
    return LoadedModel(decoder, tokenizer, template, checkpoint.stop_tokens())


@dataclass
class _Job:
    """A request under way. `deliver` is called on the engine's thread."""

    passes: Iterator[None]
    fail: Callable[[Exception], None]
    done: Callable[[], None]
    cancelled: threading.Event = field(default_factory=threading.Event)


class Engine:
    """A model and the one thread that loads and runs it.

    Loading happens on that thread too: GNU OpenMP keeps a team of threads for each thread that ever ran a parallel
    loop, and once the teams outnumber the cores it stops spinning between loops, which nearly doubled the time of
    a pass on two cores (25 → 45 ms).

    Args:
        load: makes the model; called on the engine's thread. Whatever it raises, the constructor raises.
        context: tokens that a conversation may span.
        sampling: how tokens are chosen where a reply does not say; greedy when not given.
    """

    def __init__(
        self, load: Callable[[], LoadedModel], context: int = DEFAULT_CONTEXT, sampling: Sampling | None = None
    ) -> None:
        self.sampling = sampling or Sampling()
        self._waiting: deque[_Job] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._ready: Future[LoadedModel] = Future()
        self._thread = threading.Thread(target=self._run, args=(load,), name="rejoinder-engine", daemon=True)
        self._thread.start()
        self.model = self._ready.result()
        self.context = min(context, self.model.decoder.config.context_length)

    def conversation(self) -> Conversation:
        """A new conversation with a cache of its own."""
        return Conversation(self)

    def close(self) -> None:
        """Stop the thread; requests under way are dropped."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def submit(self, job: _Job) -> None:
        """Put a request in line."""
        with self._wake:
            self._waiting.append(job)
            self._wake.notify()

    def _run(self, load: Callable[[], LoadedModel]) -> None:
        try:
            model = load()
            _warm_up(model.decoder)
        except BaseException as error:
            self._ready.set_exception(error)
            return
        self._ready.set_result(model)
        active: deque[_Job] = deque()
        while True:
            with self._wake:
                while not (self._waiting or active or self._closing):
                    self._wake.wait()
                if self._closing:
                    return
                active.extend(self._waiting)
                self._waiting.clear()
            for _ in range(len(active)):
                job = active.popleft()
                if self._advance(job):
                    active.append(job)

    @staticmethod
    def _advance(job: _Job) -> bool:
        """Give a request one pass; whether it wants another."""
        try:
            if not job.cancelled.is_set():
                next(job.passes)
                return True
        except StopIteration:
            pass
        except Exception as error:
            if not isinstance(error, ValueError):
                _log.exception("a request failed; the others go on")
            job.fail(error)
        job.done()
        return False


class Conversation:
    """One conversation: it keeps what it has read, so that each turn only new tokens are read.

    At most one request runs at a time; a new one takes the place of the one under way.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cache = engine.model.decoder.new_cache()
        self._job: _Job | None = None
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
            deadline: when a speakable clause is wanted, on `time.monotonic`. One token a step leaves no choice of
                schedule, so it is not read yet.

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

        def passes() -> Iterator[None]:
            ids, _ = self._encode(list(messages), (), answer=False)
            yield from self._read(ids[: self._engine.context])

        self._start(passes(), lambda error: _log.debug("reading ahead failed: %s", error), lambda: None)

    def cancel(self) -> None:
        """Drop the request under way; takes effect between two passes and leaves the cache usable."""
        if self._job is not None:
            self._job.cancelled.set()

    @property
    def cached_tokens(self) -> int:
        """Tokens that need not be read again."""
        return len(self._cache.tokens)

    def _start(self, passes: Iterator[None], fail: Callable[[Exception], None], done: Callable[[], None]) -> _Job:
        self.cancel()
        self._job = _Job(passes, fail, done)
        self._engine.submit(self._job)
        return self._job

    def _passes(
        self,
        messages: list[Message],
        tools: Sequence[Mapping[str, Any]],
        max_tokens: int | None,
        sampling: Sampling,
        deliver: Callable[[Progress], None],
    ) -> Iterator[None]:
        """Read what is new of the prompt, then one token a pass."""
        engine = self._engine
        ids, limit = self._encode(messages, tools, answer=True)
        budget = min(limit, max_tokens or limit)
        cached = self._cache.keep_common(ids[:-1])  # the last token is read again: its logits are wanted
        yield from self._read(ids[:-1])
        generator, text = sampling.generator(), engine.model.tokenizer.stream()
        token = ids[-1]
        for step in range(1, budget + 1):
            logits = engine.model.decoder.forward([token], self._cache, logits="last")[-1]
            token = choose(logits, sampling, generator)
            stopped = token in engine.model.stop_tokens
            finished: Literal["stop", "length"] | None = "stop" if stopped else "length" if step == budget else None
            said = "" if stopped else text.push(token)
            deliver(Progress(said, "", step, step, finished, len(ids), cached))
            if stopped:
                return
            yield

    def _read(self, ids: list[int]) -> Iterator[None]:
        """Bring the cache to hold exactly `ids`, a chunk a pass."""
        for start in range(self._cache.keep_common(ids), len(ids), PREFILL_CHUNK):
            self._engine.model.decoder.forward(ids[start : start + PREFILL_CHUNK], self._cache, logits="none")
            yield

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


def _warm_up(decoder: Decoder) -> None:
    """Run the shapes that a turn uses once, so that the first user does not wait for them."""
    cache = decoder.new_cache()
    for rows in (PREFILL_CHUNK, 1, 1):
        decoder.forward([0] * rows, cache, logits="last")


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"{name!r} is no device: choose auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"{name!r} is not supported: choose auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("there is no CUDA device on this machine (or torch was installed for the CPU): choose cpu")
    return device
