"""The engine: one thread that owns the model and runs the forward passes that conversations request.

Every request is a generator: it yields its input for the next forward pass and is sent the logits. The thread combines
the inputs of all active requests into one forward pass. So a request can be dropped between any two forward passes,
and a long request delays a short one by at most one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Literal, TypeVar

import torch
from torch import Tensor

from model.checkpoint.architectures import Attention, DiffusionConfig
from model.decode.device_steps import Attach
from model.decode.effort import DenoisingSchedule, fitted_blocks, schedule_for_effort
from model.decode.sampling import Sampling
from model.decode.speculative import DraftSettings
from model.decode.verify import VerificationResult
from model.engine.cuda_blocks import MAX_REPLAYS, CapturedBlocks
from model.engine.cuda_graph import Attachment, CUDAGraphRunner, rows_each, slot_capacity
from model.engine.kept_prefixes import KeptPrefixes
from model.engine.loader import LoadedModel
from model.engine.prefix_cache import PrefixCache
from model.engine.scheduler import Request, RequestSteps, next_ready_time, ready_requests, schedule
from model.engine.warm_up import warm_up
from model.nn.batch_drafter import BatchDrafter
from model.nn.cuda import device_failed, first_line
from model.nn.forward_batch import GPU_PREFILL_CHUNK, ForwardInput, ForwardInterrupted
from model.nn.gpu.ragged import select_ragged_attention
from model.nn.gpu.selection import gpu_operations
from model.nn.gpu.tiling import fitting_rows
from model.nn.kv_cache import KeyValueCache
from model.nn.kv_slab import KeyValueSlab, affordable_slots, slot_bytes

T = TypeVar("T")

_log = logging.getLogger("rejoinder.model")

DEFAULT_CONTEXT = 4096
"""Tokens that a conversation may span, unless the model was trained on fewer. A spoken turn is about 60 tokens, and
the fp32 cache of the 0.5B takes 24 kB per token: an hour of talk in 100 MB."""

DecodingMode = Literal["verified", "blocks"]

_MAX_COPIED = 8
"""Maximum tokens copied from the conversation at a time (n-gram look-up)."""

_MAX_GUESSED = 12
"""Maximum tokens guessed under a grammar: the quote that ends a value and the name of the next property, or the head of
a call. Unless all of them fit, the guess saves nothing."""

_MAX_ROWS = {"cpu": 64, "cuda": GPU_PREFILL_CHUNK}
"""Maximum rows of a forward pass, not counting one prompt chunk. On a CPU that many take about three times as long as
a single row. On a GPU it is mostly prompts, which are read between two steps of the attached conversations."""

_MAX_SLOTS = {"cpu": 8, "cuda": 64}
"""Conversations whose keys and values lie in the slab. Those of the 0.5B take 3.4 GB."""

_OUT_OF_MEMORY = (
    "the GPU's memory holds the model, but not what its forward passes need in addition: choose a smaller model, or "
    "stop what else runs on that GPU"
)

_DEVICE_FAILED = (
    "the GPU failed ({error}), and after that no other call to it can succeed in this process: start the process again"
)


class DeviceFailed(RuntimeError):
    """The GPU cannot be used by this process any more, so every request has failed and every new one will."""


class Engine:
    """A model and the one thread that loads and runs it.

    The model is loaded on that thread too. GNU OpenMP keeps a team of threads for each thread that ever ran a parallel
    loop. Once the teams outnumber the cores it stops spinning between loops, which nearly doubled the time of a forward
    pass on two cores (25 → 45 ms).

    Args:
        load: loads the model; called on the engine's thread. The constructor raises whatever it raises.
        context: tokens that a conversation may span.
        sampling: used where a request has no sampling of its own; greedy when not given.
        decoding: `verified` (drafts are verified: the base model's own output) or `blocks` (blocks are denoised and not
            verified); what the model was made for when not given.
        denoising_schedule: how blocks are denoised where a request does not say.
        cuda_graphs: whether conversations run whole steps on the device, with `CUDAGraphRunner`; on a GPU when not
            given.
        max_slots: conversations that have room on the device at most, each of which makes the start longer; 64 when not
            given.

    Attributes:
        diffusion: how blocks are denoised, or None when drafts are verified.
        draft_length: decides how many tokens are drafted.
        attention, block_size: the attention of finished text, and the size of its blocks.
        prefix_cache: prompt prefixes that conversations share.
        failure: gets its result when the GPU fails, which ends the engine. The process must then end too.
        drafts_with_grammar: whether tokens are copied, and drafted with an adapter, while a grammar is followed. Not on
            a CPU: the grammar forces what is easy to predict, and the forced tokens' rows share the forward pass. With
            copies, tool calls were generated at 0.88 (0.5B) and 0.79 times (1.5B) the speed without, on two cores, four
            requests each. Only the ends of short values and the head of a call are guessed there, and a draft head
            drafts.
    """

    def __init__(
        self,
        load: Callable[[], LoadedModel],
        context: int = DEFAULT_CONTEXT,
        sampling: Sampling | None = None,
        decoding: DecodingMode | None = None,
        denoising_schedule: DenoisingSchedule | None = None,
        cuda_graphs: bool | None = None,
        max_slots: int | None = None,
    ) -> None:
        self.sampling = sampling or Sampling()
        self.denoising_schedule = denoising_schedule or schedule_for_effort("medium")
        self.prefix_cache = PrefixCache()
        self._requested_mode = decoding
        self._active_generations = 1
        self._step_count = 0
        self._current_request: Request | None = None
        self._cuda_graphs, self._max_slots = cuda_graphs, max_slots
        self._slab: KeyValueSlab | None = None
        self._runner: CUDAGraphRunner | None = None
        self._blocks: CapturedBlocks | None = None
        self.failure: Future[DeviceFailed] = Future()
        self._device = torch.device("cpu")
        self.drafts_with_grammar = False
        self._last_spoken = float("-inf")
        self._waiting: deque[Request] = deque()
        self._active: list[Request] = []
        self._wake = threading.Condition()
        self._closing = False
        self._ready: Future[LoadedModel] = Future()
        self._thread = threading.Thread(target=self._run, args=(load, context), name="rejoinder-engine", daemon=True)
        self._thread.start()
        self.model = self._ready.result()
        config = self.model.decoder.config
        self.context = min(context, config.context_length)
        self._max_rows = _MAX_ROWS[self.model.decoder.device.type]
        self.attention: Attention = config.diffusion.text_attention if config.diffusion else "causal"
        self.block_size = config.diffusion.block_size if config.diffusion and self.attention == "block" else 1

    def close(self) -> None:
        """Stop the thread; active requests are dropped."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def drafting(self, *, constrained: bool = False, max_steps: int = 1) -> DraftSettings:
        """How the next step of a conversation drafts: as many tokens as are worth their rows, given how many
        conversations currently share a forward pass.

        Args:
            constrained: whether it follows a grammar.
            max_steps: most denoising steps of a block drafter.
        """
        family = self.model.decoder.config.diffusion
        if family is not None and family.verification == "linear" and self.model.may_draft:
            return DraftSettings(family.block_size - 1, linear=True)
        single, head = self._active_generations == 1, DraftSettings()
        if self.model.draft_head is not None:
            head = DraftSettings(
                worth_drafting=partial(self.draft_length.worth_drafting, conversations=self._active_generations),
                num_others=partial(self.draft_length.num_others, conversations=self._active_generations),
                max_steps=self.draft_length.denoising_steps(max_steps, self._active_generations),
            )
        if constrained and not self.drafts_with_grammar:
            # No other choices: the grammar would have to be followed for each, which takes longer than its row.
            return replace(head, max_guessed=_MAX_GUESSED if single else 0, num_others=None)
        max_copied = self.draft_length.num_copied(_MAX_COPIED) if single else 0
        if self.model.draft_head is not None:
            return replace(head, max_copied=max_copied)
        return DraftSettings(self.draft_length.num_drafts(self._active_generations), max_copied=max_copied)

    def pause(self, request: Request, seconds: float) -> None:
        """Leave a request out for this long, because other work needs its processor. No effect on a GPU, which nothing
        else uses."""
        if self.model.decoder.device.type == "cpu":
            with self._wake:
                request.paused_until = time.monotonic() + seconds
                self._wake.notify()

    def call(self, work: Callable[[LoadedModel], T]) -> T:
        """Run `work` on the engine's thread, between two forward passes, and wait for it. For measurements."""
        result: Future[T] = Future()

        def steps() -> RequestSteps:
            result.set_result(work(self.model))
            yield from ()

        self.submit(steps(), result.set_exception, lambda: None)
        return result.result()

    def submit(
        self,
        steps: RequestSteps,
        on_error: Callable[[Exception], None],
        on_done: Callable[[], None],
        *,
        background: bool = False,
        bulk: bool = False,
    ) -> Request:
        """Queue a request. `on_error` and `on_done` are called on the engine's thread.

        Args:
            background: other requests come first. One that arrives interrupts a forward pass of background requests,
                which is run again later. No effect on a GPU, whose forward passes are short.
            bulk: requests in the background come first, too. On a GPU as well, all other requests do.

        Raises:
            DeviceFailed: the GPU failed.
            RuntimeError: the engine was closed.
        """
        background = bulk or (background and self._device.type == "cpu")
        request = Request(
            steps, on_error, on_done, last_progress_step=self._step_count, background=background, bulk=bulk
        )
        with self._wake:
            if self.failure.done():
                raise self.failure.result()
            if self._closing:
                raise RuntimeError("the engine was closed")
            self._waiting.append(request)
            self._wake.notify()
        return request

    def record_commit(self) -> None:
        """The current request has committed tokens, so other requests come before it now."""
        if self._current_request is not None:
            self._current_request.last_progress_step = self._step_count

    @property
    def is_wanted(self) -> bool:
        """Whether the current request has not been cancelled."""
        return self._current_request is None or not self._current_request.cancelled.is_set()

    @property
    def replayed_steps(self) -> dict[int, tuple[int, float]]:
        """Drafts of a conversation and seconds of a replayed step, by the number of conversations that share it. Empty
        where nothing is replayed."""
        runner = self._runner
        return {} if runner is None else {n: (runner.num_drafts[n], s) for n, s in runner.step_seconds.items()}

    def new_cache(self) -> KeyValueCache:
        """An empty cache for a conversation: on a GPU in a slot of the slab, so that it can be attached."""
        return self.model.decoder.new_cache() if self._slab is None else self._slab.new_cache()

    def attach(self, *, drafting: bool) -> Attach | None:
        """What lets the device take whole steps of a conversation (`CUDAGraphRunner.attach`); None if it takes none."""
        return None if self._runner is None else partial(self._runner.attach, drafting=drafting)

    def _run(self, load: Callable[[], LoadedModel], context: int) -> None:
        try:
            model = load()
            self._start(model, context)
        except torch.OutOfMemoryError:
            self._ready.set_exception(ValueError(_OUT_OF_MEMORY))
            return
        except BaseException as error:
            self._ready.set_exception(error)
            return
        self._ready.set_result(model)
        try:
            self._serve(model)
        except DeviceFailed as failure:
            _log.error("%s", failure, exc_info=failure)
            with self._wake:
                self.failure.set_result(failure)
            self._end_all(failure)

    def _serve(self, model: LoadedModel) -> None:
        """Run forward passes until the engine is closed. Raises DeviceFailed."""
        while True:
            with self._wake:
                while not (self._waiting or self._active or self._closing):
                    self._wake.wait()
                arrived = list(self._waiting)
                self._waiting.clear()
            # Active requests first: a request that replaces another must find that one closed.
            for request in list(self._active):
                self._end_if_cancelled(request)
            self._active += arrived
            if self._closing:
                self._end_all(RuntimeError("the engine was closed"))
                return
            for request in arrived:
                if not self._end_if_cancelled(request):
                    self._advance(request, None)
            if any(not request.background for request in self._active):
                self._last_spoken = time.monotonic()
            ready = ready_requests(self._active, time.monotonic(), self._last_spoken)
            if self._active and not ready:
                with self._wake:
                    if not (self._waiting or self._closing):
                        seconds = next_ready_time(self._active, self._last_spoken) - time.monotonic()
                        self._wake.wait(max(0.0, seconds))
            if ready:
                for request, logits in self._forward(model, self._select(ready)):
                    self._advance(request, logits)

    def _start(self, model: LoadedModel, context: int) -> None:
        self._device = model.decoder.device
        trained = []
        if model.program_prefix is not None:
            trained = [model.decoder.new_cache()]
            trained[0].load(model.program_prefix.tokens, model.program_prefix.keys, model.program_prefix.values)
        self.prefix_cache = PrefixCache(trained, KeptPrefixes.of(model))
        on_gpu = self.drafts_with_grammar = self._device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(self._device)  # graphs are captured on the current device
        self.diffusion = _diffusion_config(model, self._requested_mode)
        if self.diffusion is not None:
            self.diffusion = fitted_blocks(self.diffusion, self.denoising_schedule, model.decoder.config.family)
        self.draft_length = warm_up(model, model.max_drafts)
        family = model.decoder.config.diffusion
        linear = family is not None and family.verification == "linear"
        if not linear and (on_gpu if self._cuda_graphs is None else self._cuda_graphs):
            self._start_graphs(model, min(context, model.decoder.config.context_length))

    def _start_graphs(self, model: LoadedModel, context: int) -> None:
        """Make room for conversations, and capture their steps."""
        decoder, drafts, operations = model.decoder, model.max_drafts, gpu_operations(self._device)
        head = model.draft_head if isinstance(model.draft_head, BatchDrafter) else None
        branches, slots = head is None, self._max_slots or _MAX_SLOTS[self._device.type]
        copies = (
            _MAX_COPIED if operations is None else fitting_rows(rows_each(drafts, 0, branches=branches), _MAX_COPIED)
        )
        capacity = slot_capacity(context, drafts, copies, branches=branches)
        if self._device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(self._device)
            slots = affordable_slots(slot_bytes(decoder.config, decoder.dtype.itemsize, capacity), free, slots)
            _log.info("room for %d conversations in GPU memory", slots)
        self._slab = KeyValueSlab(decoder.config, decoder.dtype, self._device, slots, capacity)
        decoder.ragged_attention = select_ragged_attention(decoder.config, decoder.dtype, self._device)
        if self.diffusion is not None:
            adapter = model.adapter if decoder.config.diffusion is None else None
            self._blocks = CapturedBlocks(decoder, adapter, self.diffusion, self._slab, operations)
            self._blocks.warm_up()
            return
        self._runner = CUDAGraphRunner(
            decoder, model.adapter, drafts, self._slab, copies, operations,
            head.acceptance[0] if head else model.adapter.acceptance if model.adapter else (), head,
        )  # fmt: skip
        self._runner.warm_up()

    def _select(self, ready: list[Request]) -> list[Request]:
        self._active_generations = max(1, sum(request.is_generating for request in ready))
        self._step_count += 1
        chosen = schedule(ready, self._max_rows)
        for request in chosen:
            if request.is_prefill:
                request.last_progress_step = self._step_count
        return chosen

    def _forward(self, model: LoadedModel, chosen: list[Request]) -> list[tuple[Request, Tensor | VerificationResult]]:
        """One forward pass over some requests. If it fails, each request is tried alone, and only the one that fails is
        dropped. Raises DeviceFailed."""
        inputs = [(request, request.next_input) for request in chosen]
        background, bulk = (all(getattr(request, kind) for request in chosen) for kind in ("background", "bulk"))
        model.decoder.interruption = partial(self._others_wait, bulk=bulk) if background else None
        attached = {steps: request for request, steps in inputs if isinstance(steps, Attachment)}
        others = [(request, rows) for request, rows in inputs if isinstance(rows, ForwardInput)]
        results: list[tuple[Request, Tensor | VerificationResult]] = []
        try:
            if attached and self._runner is not None:
                results += [(attached[steps], result) for steps, result in self._runner.step([*attached])]
            if self._blocks is not None and len(others) <= MAX_REPLAYS:
                replayed = [(request, self._blocks.run(rows)) for request, rows in others if request.is_generating]
                results += [(request, logits) for request, logits in replayed if logits is not None]
                others = [(request, rows) for request, rows in others if all(request is not r for r, _ in results)]
            if others:
                start = time.perf_counter()
                logits = model.decoder.run([rows for _, rows in others], model.adapter)
                if len(others) == 1 and others[0][0].is_generating and self._device.type == "cpu":
                    self.draft_length.record_time(others[0][0].num_rows, time.perf_counter() - start)
                results += zip((request for request, _ in others), logits, strict=True)
            return results
        except ForwardInterrupted:
            return results  # the requests keep their inputs, and run again
        except Exception as error:
            failure = error
        finally:
            model.decoder.interruption = None
        if isinstance(failure, torch.OutOfMemoryError):
            failure.with_traceback(None)  # it references the tensors of the forward pass; the retries need that memory
            if self._device.type == "cuda":
                torch.cuda.empty_cache()
        self._check_device(failure)
        if len(chosen) == 1:
            self._end(chosen[0], _request_error(failure))
            return []
        remaining = [request for request in chosen if all(request is not finished for finished, _ in results)]
        return results + [result for request in remaining for result in self._forward(model, [request])]

    def _others_wait(self, *, bulk: bool) -> bool:
        """Whether a request has arrived that comes before those in the background, or before those in bulk."""
        with self._wake:
            return any(not (request.bulk if bulk else request.background) for request in self._waiting)

    def _check_device(self, error: Exception) -> None:
        """Raise DeviceFailed if the error was the GPU's and will be that of every later call too."""
        if device_failed(self._device):
            raise DeviceFailed(_DEVICE_FAILED.format(error=first_line(error))) from error

    def _end_if_cancelled(self, request: Request) -> bool:
        """Returns whether the request was cancelled and has ended."""
        if request.cancelled.is_set():
            self._end(request, None)
        return request.cancelled.is_set()

    def _advance(self, request: Request, logits: Tensor | VerificationResult | None) -> None:
        """Send a request its logits, and end it if it needs no other forward pass. Raises DeviceFailed: an error of the
        GPU may only show when its results are read."""
        self._current_request = request
        try:
            request.next_input = next(request.steps) if logits is None else request.steps.send(logits)
        except StopIteration:
            self._end(request, None)
        except Exception as error:
            if not isinstance(error, ValueError):
                self._check_device(error)
                error = _request_error(error)
            self._end(request, error)

    def _end_all(self, error: Exception) -> None:
        with self._wake:
            requests = [*self._active, *self._waiting]
            self._waiting.clear()
        for request in requests:
            self._end(request, error)

    def _end(self, request: Request, error: Exception | None) -> None:
        request.next_input = None
        self._active = [other for other in self._active if other is not request]
        try:
            request.steps.close()
        except Exception as close_error:  # copying keys and values back to the conversation may run out of memory
            error = error or _request_error(close_error)
        try:
            if error is not None:
                request.on_error(error)
            request.on_done()
        except Exception:
            _log.exception("a request could not be ended properly; other requests continue")


def _diffusion_config(model: LoadedModel, mode: DecodingMode | None) -> DiffusionConfig | None:
    """How blocks are denoised; None where drafts are verified."""
    family = model.decoder.config.diffusion
    if mode is None:
        mode = "verified" if family is None or family.verification else "blocks"
    if mode == "verified":
        if family is not None and family.verification is None:
            name = model.decoder.config.family
            raise ValueError(f"a {name} model cannot verify its own drafts: choose the decoding `blocks`")
        return None
    if family is not None:
        return family
    if model.adapter is None:
        raise ValueError("this model was not trained to denoise: run `rejoinder convert`, or choose `verified`")
    # The clean row predicts a block's first token, and each noise row predicts the token after its own.
    return DiffusionConfig(
        -1,
        model.adapter.num_drafts + 1,
        "causal",
        block_attention="causal",
        predicts_next_token=True,
        first_token_from_prefix=True,
    )


def _request_error(error: Exception) -> Exception:
    """The error that is reported to the owner of a failed request."""
    if isinstance(error, torch.OutOfMemoryError):
        return RuntimeError(
            "the GPU ran out of memory for this request; other requests continue: shorten the conversation, or allow "
            "fewer conversations at a time"
        )
    _log.error("a request failed; other requests continue", exc_info=error)
    return error
