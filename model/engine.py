"""The engine: one thread that owns the model, and runs the passes that conversations ask for.

Every request is a generator: it yields the rows that it wants in the next pass and is sent their logits. The thread
puts the rows of all active requests into one pass. So a request can be dropped between any two passes, and a long one
never holds up a short one by more than one.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from model.adapter import Adapter
from model.chat import CHATML, ChatTemplate
from model.conversation import PREFILL_CHUNK, Conversation
from model.gguf_file import BadModelFile
from model.linear import int8_runs_here
from model.sampling import Sampling
from model.tokenizer import TextTokenizer
from model.transformer import Decoder, Precision, Rows
from model.weights import open_checkpoint

T = TypeVar("T")

_log = logging.getLogger("rejoinder.model")

DEFAULT_CONTEXT = 4096
"""Tokens that a conversation may span, unless the model was trained on fewer. A spoken turn is about 60 tokens, and
the fp32 cache of the 0.5B takes 24 kB a token: an hour's talk in 100 MB."""


@dataclass(frozen=True)
class LoadedModel:
    """Everything that an engine runs.

    Attributes:
        stop_tokens: ids that end a reply.
        adapter: what it drafts with; without one it still looks up, and else says one token a pass.
    """

    decoder: Decoder
    tokenizer: TextTokenizer
    template: ChatTemplate
    stop_tokens: frozenset[int]
    adapter: Adapter | None = None


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


Passes = Generator[Rows, Tensor, None]
"""A request: yields the rows of its next pass, is sent their logits."""


@dataclass
class Job:
    """A request under way. `fail` and `done` are called on the engine's thread."""

    passes: Passes
    fail: Callable[[Exception], None]
    done: Callable[[], None]
    cancelled: threading.Event = field(default_factory=threading.Event)
    rows: Rows | None = None


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
        self._waiting: deque[Job] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._ready: Future[LoadedModel] = Future()
        self._thread = threading.Thread(target=self._run, args=(load,), name="rejoinder-engine", daemon=True)
        self._thread.start()
        self.model = self._ready.result()
        self.context = min(context, self.model.decoder.config.context_length)

    def conversation(self, *, drafting: bool = True) -> Conversation:
        """A new conversation with a cache of its own. Without drafting it says one token a pass."""
        return Conversation(self, drafting=drafting)

    def close(self) -> None:
        """Stop the thread; requests under way are dropped."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def call(self, work: Callable[[LoadedModel], T]) -> T:
        """Run `work` on the engine's thread, between two passes, and wait for it. For measuring."""
        result: Future[T] = Future()

        def passes() -> Passes:
            result.set_result(work(self.model))
            yield from ()

        self.submit(passes(), result.set_exception, lambda: None)
        return result.result()

    def submit(self, passes: Passes, fail: Callable[[Exception], None], done: Callable[[], None]) -> Job:
        """Put a request in line. `fail` and `done` are called on the engine's thread."""
        job = Job(passes, fail, done)
        with self._wake:
            self._waiting.append(job)
            self._wake.notify()
        return job

    def _run(self, load: Callable[[], LoadedModel]) -> None:
        try:
            model = load()
            _warm_up(model.decoder)
        except BaseException as error:
            self._ready.set_exception(error)
            return
        self._ready.set_result(model)
        active: list[Job] = []
        while True:
            with self._wake:
                while not (self._waiting or active or self._closing):
                    self._wake.wait()
                if self._closing:
                    return
                arrived = list(self._waiting)
                self._waiting.clear()
            # A request that takes another's place comes behind it, and finds it closed.
            active = [job for job in active if self._goes_on(job)]
            active += [job for job in arrived if self._goes_on(job) and self._advance(job, None)]
            if active:
                results = self._pass(model, active)
                active = [job for job, logits in results if self._advance(job, logits)]

    def _pass(self, model: LoadedModel, active: list[Job]) -> list[tuple[Job, Tensor]]:
        """One pass over all requests. Should it fail, each is tried alone, and only the one at fault is dropped."""
        rows = [job.rows for job in active if job.rows is not None]
        try:
            return list(zip(active, model.decoder.run(rows, model.adapter), strict=True))
        except Exception as error:
            if len(active) == 1:
                _log.exception("a request failed; the others go on")
                self._end(active[0], error)
                return []
            return [result for job in active for result in self._pass(model, [job])]

    def _goes_on(self, job: Job) -> bool:
        if job.cancelled.is_set():
            self._end(job, None)
            return False
        return True

    def _advance(self, job: Job, logits: Tensor | None) -> bool:
        """Hand a request its logits; whether it wants another pass."""
        try:
            job.rows = next(job.passes) if logits is None else job.passes.send(logits)
            return True
        except StopIteration:
            self._end(job, None)
        except Exception as error:
            if not isinstance(error, ValueError):
                _log.exception("a request failed; the others go on")
            self._end(job, error)
        return False

    @staticmethod
    def _end(job: Job, error: Exception | None) -> None:
        job.passes.close()
        if error is not None:
            job.fail(error)
        job.done()


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
