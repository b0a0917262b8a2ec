"""The engine: one thread that owns the model, and runs the passes that conversations ask for.

Every request is a generator: it yields the rows that it wants in the next pass and is sent their logits. The thread
puts the rows of all active requests into one pass. So a request can be dropped between any two passes, and a long one
never holds up a short one by more than one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import torch
from torch import Tensor

from model.adapter import Adapter, load_adapter
from model.batching import Job, Passes, choose
from model.chat import CHATML, ChatTemplate
from model.conversation import Conversation
from model.decode.draft import Draft
from model.decode.pace import Pace
from model.decode.schedule import Schedule, schedule_for
from model.decode.verified import Drafting
from model.decode.verify import Outcome, Pass
from model.ending import Ending, load_ending
from model.families import Attention, Denoising
from model.gguf_file import BadModelFile
from model.linear import int8_runs_here
from model.lora import LINEAR_SPEC, load_lora
from model.prefixes import SharedPrefixes
from model.sampling import Sampling
from model.shipped import shipped_adapter, shipped_ending, weights_checksum
from model.stride import Strider
from model.tokenizer import TextTokenizer
from model.transformer import PREFILL_CHUNK, Decoder, Precision, Rows
from model.weights import open_checkpoint

T = TypeVar("T")

_log = logging.getLogger("rejoinder.model")

DEFAULT_CONTEXT = 4096
"""Tokens that a conversation may span, unless the model was trained on fewer. A spoken turn is about 60 tokens, and
the fp32 cache of the 0.5B takes 24 kB a token: an hour's talk in 100 MB."""


Decoding = Literal["verified", "blocks"]

_COPIED = 8
"""Tokens that are copied from the conversation at a time at most, where its newest words stood before."""

_MOST_ROWS = {"cpu": 64, "cuda": 295}
"""Rows of a pass at most, a piece of a prompt apart: on a CPU what is about three times a single row's time, on an H100
where reading the weights stops being what takes longest (its ridge)."""

_MOST_SLOTS = 8
"""Drafts of a branch at most, whatever a configuration says: (8 + 1)² rows."""

_NO_ROOM = (
    "the GPU's memory holds the model, but not what its passes need beside it: choose a smaller model, or end what "
    "else runs on that GPU"
)

_TIMED = 3
"""Times that each shape is run at the start; the quickest counts."""


@dataclass(frozen=True)
class LoadedModel:
    """Everything that an engine runs.

    Attributes:
        stop_tokens: ids that end a reply.
        adapter: what it drafts with. Without one, models that have a mask token of their own draft with that; others
            copy from the conversation, or say one token a pass.
        ending: tells whether a user's turn is complete; None where nothing was trained for these weights.
    """

    decoder: Decoder
    tokenizer: TextTokenizer
    template: ChatTemplate
    stop_tokens: frozenset[int]
    adapter: Adapter | None = None
    ending: Ending | None = None


def load_model(
    path: Path,
    *,
    device: str = "auto",
    precision: Precision | None = None,
    adapter: Path | Literal["auto", "none"] = "auto",
    ending: Path | Literal["auto", "none"] = "auto",
    family: str | None = None,
) -> LoadedModel:
    """Open a GGUF file or a safetensors folder.

    Args:
        device: `auto` (a GPU when there is one), `cpu`, `cuda`, `cuda:1`, …
        precision: int8 on the CPU and bfloat16 elsewhere when not given.
        adapter: what it drafts with: a file, `auto` for the one that is shipped for these weights or lies in their
            folder, or `none`.
        ending: what tells whether a user's turn is complete, chosen alike.
        family: what a folder is, by its name in `families.py`; told by its configuration when not given.

    Raises:
        BadModelFile: the model or the adapter cannot be read, or the adapter was made for other weights.
        ValueError: the device is not there, or too small.
    """
    where = _device(device)
    default: Precision = "bfloat16" if where.type == "cuda" else "int8" if int8_runs_here() else "float32"
    try:
        checkpoint = open_checkpoint(path, family)
        decoder = Decoder(checkpoint, where, precision or default)
        tokenizer = checkpoint.tokenizer()
        if decoder.mask_token is not None:
            tokenizer.spell_out(decoder.mask_token)
        template = ChatTemplate(checkpoint.chat_template() or CHATML, tokenizer, checkpoint.template_tokens())
    except (RuntimeError, KeyError, TypeError, ArithmeticError, IndexError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise ValueError(f"{path.name} does not fit into the memory of {where}: choose a smaller model") from None
        raise BadModelFile(f"{path} is not a model that can be run ({type(error).__name__}: {error})") from error
    drafts = _adapter(path, decoder, adapter)
    ends = _ending(path, decoder, ending)
    return LoadedModel(decoder, tokenizer, template, checkpoint.stop_tokens(), drafts, ends)


def _adapter(path: Path, decoder: Decoder, asked: Path | Literal["auto", "none"]) -> Adapter | None:
    if asked == "none":
        return None
    own = path / LINEAR_SPEC
    if isinstance(asked, Path):
        found: Adapter | None = load_adapter(asked, decoder.config, weights_checksum(path))
    elif own.is_dir() and decoder.mask_token is not None:
        mask = decoder.embedding(torch.tensor([decoder.mask_token], device=decoder.device))[0]
        found = load_lora(own, decoder.config, mask)
    else:
        found = shipped_adapter(path, decoder.config)
    return None if found is None else found.to(decoder.device, decoder.dtype)


def _ending(path: Path, decoder: Decoder, asked: Path | Literal["auto", "none"]) -> Ending | None:
    if asked == "none":
        return None
    if isinstance(asked, Path):
        found: Ending = load_ending(asked, decoder.config, weights_checksum(path))
        return found
    return shipped_ending(path, decoder.config)


class Engine:
    """A model and the one thread that loads and runs it.

    Loading happens on that thread too: GNU OpenMP keeps a team of threads for each thread that ever ran a parallel
    loop, and once the teams outnumber the cores it stops spinning between loops, which nearly doubled the time of
    a pass on two cores (25 → 45 ms).

    Args:
        load: makes the model; called on the engine's thread. Whatever it raises, the constructor raises.
        context: tokens that a conversation may span.
        sampling: how tokens are chosen where a reply does not say; greedy when not given.
        decoding: `verified` (drafts are checked: the base model's own words) or `blocks` (blocks are denoised and not
            checked); what the model was made for when not given.
        schedule: how blocks are denoised where a reply does not say.
        strides: whether a conversation that is alone runs in whole passes on the device; on a GPU when not given.

    Attributes:
        denoising: how blocks are denoised, or None in verified decoding.
        attention, block: how finished text is read.
        prefixes: what conversations share.
    """

    def __init__(
        self,
        load: Callable[[], LoadedModel],
        context: int = DEFAULT_CONTEXT,
        sampling: Sampling | None = None,
        decoding: Decoding | None = None,
        schedule: Schedule | None = None,
        strides: bool | None = None,
    ) -> None:
        self.sampling = sampling or Sampling()
        self.schedule = schedule or schedule_for("medium")
        self.prefixes = SharedPrefixes()
        self._asked = decoding
        self._speaking, self._passes, self._alone = 1, 0, False
        self._advancing: Job | None = None
        self._strides = strides
        self._striders: dict[bool, Strider] = {}
        self._waiting: deque[Job] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._ready: Future[LoadedModel] = Future()
        self._thread = threading.Thread(target=self._run, args=(load, context), name="rejoinder-engine", daemon=True)
        self._thread.start()
        self.model = self._ready.result()
        config = self.model.decoder.config
        self.context = min(context, config.context_length)
        self._most_rows = _MOST_ROWS[self.model.decoder.device.type]
        self.attention: Attention = config.denoising.text if config.denoising else "causal"
        self.block = config.denoising.block if config.denoising and self.attention == "block" else 1

    def conversation(self, *, drafting: bool = True) -> Conversation:
        """A new conversation with a cache of its own. Without drafting it says one token a pass."""
        return Conversation(self, drafting=drafting)

    def close(self) -> None:
        """Stop the thread; requests under way are dropped."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def drafting(self) -> Drafting:
        """How the next pass of a conversation is drafted: with as many drafts as pay for their rows, now that so many
        conversations share a pass."""
        family = self.model.decoder.config.denoising
        if family is not None and family.verified == "linear":
            return Drafting(family.block - 1, linear=True)
        return Drafting(self.pace.slots(self._speaking), copied=self.pace.copied(_COPIED) if self._speaking == 1 else 0)

    def rest(self, job: Job, seconds: float) -> None:
        """Leave a request out for so long: its processor is wanted elsewhere. On a GPU nobody else wants it."""
        if self.model.decoder.device.type == "cpu":
            with self._wake:
                job.rests_until = time.monotonic() + seconds
                self._wake.notify()

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
        job = Job(passes, fail, done, since=self._passes)
        with self._wake:
            if self._closing:
                raise RuntimeError("the engine was closed")
            self._waiting.append(job)
            self._wake.notify()
        return job

    def _run(self, load: Callable[[], LoadedModel], context: int) -> None:
        try:
            model = load()
            if model.decoder.device.type == "cuda":
                torch.cuda.set_device(model.decoder.device)  # graphs are captured on the current one
            self.denoising = _denoising(model, self._asked)
            self.pace = _warm_up(model)
            on_gpu = model.decoder.device.type == "cuda"
            family = model.decoder.config.denoising
            linear = family is not None and family.verified == "linear"
            if self.denoising is None and not linear and (on_gpu if self._strides is None else self._strides):
                room = min(context, model.decoder.config.context_length)
                for drafting, slots in ((True, _most_slots(model)), (False, 0)):
                    adapter, copies = model.adapter if slots else None, _COPIED if drafting else 0
                    self._striders[drafting] = Strider(model.decoder, adapter, slots, room, copies)
                    self._striders[drafting].warm_up()
        except torch.OutOfMemoryError:
            self._ready.set_exception(ValueError(_NO_ROOM))
            return
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
                    for job in (*active, *self._waiting):
                        self._end(job, RuntimeError("the engine was closed"))
                    return
                arrived = list(self._waiting)
                self._waiting.clear()
            # A request that takes another's place comes behind it, and finds it closed.
            active = [job for job in active if self._goes_on(job)]
            self._alone = len(active) + len(arrived) == 1
            active += [job for job in arrived if self._goes_on(job) and self._advance(job, None)]
            self._alone = len(active) == 1
            ready = [job for job in active if job.rests_until <= time.monotonic()]
            if active and not ready:
                with self._wake:
                    self._wake.wait(max(0.0, min(job.rests_until for job in active) - time.monotonic()))
            if ready:
                chosen = self._choose(ready)
                gone = [job for job, logits in self._pass(model, chosen) if not self._advance(job, logits)]
                active = [job for job in active if job.rows is not None and job not in gone]

    def _choose(self, ready: list[Job]) -> list[Job]:
        self._speaking = max(1, sum(job.speaks for job in ready))
        self._passes += 1
        chosen = choose(ready, self._most_rows)
        for job in chosen:
            if job.reads:
                job.since = self._passes
        return chosen

    def committed(self) -> None:
        """The request that is being advanced has committed something: others come first now."""
        if self._advancing is not None:
            self._advancing.since = self._passes

    def _pass(self, model: LoadedModel, chosen: list[Job]) -> list[tuple[Job, Tensor | Outcome]]:
        """One pass over some requests. Should it fail, each is tried alone, and only the one at fault is dropped."""
        strides = [(job, job.rows) for job in chosen if isinstance(job.rows, Strider)]
        others = [(job, job.rows) for job in chosen if isinstance(job.rows, Rows)]
        results: list[tuple[Job, Tensor | Outcome]] = []
        try:
            results += [(job, stride.step()) for job, stride in strides]
            if others:
                began = time.perf_counter()
                logits = model.decoder.run([rows for _, rows in others], model.adapter)
                if len(others) == 1 and others[0][0].speaks and model.decoder.device.type == "cpu":
                    self.pace.took(others[0][0].size, time.perf_counter() - began)
                results += zip((job for job, _ in others), logits, strict=True)
            return results
        except Exception as error:
            failure = error
        if isinstance(failure, torch.OutOfMemoryError):
            failure.with_traceback(None)  # it holds on to the tensors of the pass, and the others want their room
            if model.decoder.device.type == "cuda":
                torch.cuda.empty_cache()
        if len(chosen) == 1:
            self._end(chosen[0], _explained(failure))
            return []
        left = [job for job in chosen if all(job is not done for done, _ in results)]
        return results + [result for job in left for result in self._pass(model, [job])]

    def stride(self, drafting: bool) -> Strider | None:
        """Whole passes on the device, for a conversation that has the engine to itself."""
        return self._striders.get(drafting) if self._alone else None

    def _goes_on(self, job: Job) -> bool:
        if job.cancelled.is_set():
            self._end(job, None)
            return False
        return True

    def _advance(self, job: Job, logits: Tensor | Outcome | None) -> bool:
        """Hand a request its logits; whether it wants another pass."""
        self._advancing = job
        try:
            job.rows = next(job.passes) if logits is None else job.passes.send(logits)
            return True
        except StopIteration:
            self._end(job, None)
        except Exception as error:
            self._end(job, error if isinstance(error, ValueError) else _explained(error))
        return False

    @staticmethod
    def _end(job: Job, error: Exception | None) -> None:
        job.rows = None
        try:
            job.passes.close()
        except Exception as late:  # it may want memory, to give a conversation its keys back
            error = error or _explained(late)
        try:
            if error is not None:
                job.fail(error)
            job.done()
        except Exception:
            _log.exception("a request could not be ended properly; the others go on")


def _warm_up(model: LoadedModel) -> Pace:
    """Run the shapes that a turn uses once, so that the first user does not wait for them, and time them."""
    decoder, most = model.decoder, _most_slots(model)
    cache = decoder.new_cache()
    read = min(PREFILL_CHUNK, decoder.config.context_length - 2 * most - 1)
    decoder.forward([0] * max(1, read), cache, logits="last")
    cost: dict[int, float] = {}
    for _ in range(_TIMED):
        for slots in range(most + 1):
            rows = Pass(0, Draft((0,) * slots), (), slots).rows(cache)
            began = time.perf_counter()
            decoder.run([rows], model.adapter)[0][0, 0].item()
            took = time.perf_counter() - began
            size = len(rows.tokens)
            cost[size] = min(cost.get(size, took), took)
    return Pace(cost, most, model.adapter.acceptance if model.adapter else ())


def _most_slots(model: LoadedModel) -> int:
    """How many drafts a branch may hold."""
    family = model.decoder.config.denoising
    if family is not None:
        own = model.adapter.slots if model.adapter else family.block
        return min(own, _MOST_SLOTS) if family.verified == "branches" else 0
    return model.adapter.slots if model.adapter else 0


def _denoising(model: LoadedModel, asked: Decoding | None) -> Denoising | None:
    """How blocks are denoised; None where drafts are verified."""
    family = model.decoder.config.denoising
    if asked is None:
        asked = "verified" if family is None or family.verified else "blocks"
    if asked == "verified":
        if family is not None and family.verified is None:
            name = model.decoder.config.family
            raise ValueError(f"a {name} model cannot check its own drafts: choose the decoding `blocks`")
        return None
    if family is not None:
        return family
    if model.adapter is None:
        raise ValueError("this model was not taught to denoise: run `rejoinder convert`, or choose `verified`")
    # The clean row says a block's first token, and each noise row the one behind its own.
    return Denoising(-1, model.adapter.slots + 1, "causal", inside="causal", shift=True, seeded=True)


def _explained(error: Exception) -> Exception:
    """What a failure is called to the one whose request it was."""
    if isinstance(error, torch.OutOfMemoryError):
        return RuntimeError(
            "the GPU ran out of memory for this request; the others go on: shorten the conversation, or allow fewer "
            "conversations at a time"
        )
    _log.error("a request failed; the others go on", exc_info=error)
    return error


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
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"there is no {name} on this machine: it has {torch.cuda.device_count()} CUDA devices")
    return device
