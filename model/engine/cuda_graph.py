"""Runs the steps of all conversations as CUDA graphs, captured once and replayed: for each size of a batch one that
takes the likeliest tokens, and one that samples, follows grammars and has log probabilities (`TokenChoice`). A
conversation joins and leaves without a copy, because its keys and values stay in their slot.

The host is a step or two behind: steps are launched before the results of earlier ones are read, unless a conversation
follows a grammar, which must know its text. Prompts go through `Decoder.run`, between two steps.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from model.decode.constraint import RowRule
from model.decode.device_steps import TokenSettings
from model.decode.draft import Draft
from model.decode.draft_length import best_num_drafts, num_rows
from model.decode.verify import VerificationResult
from model.engine.batch_step import BatchStep, step_shape
from model.engine.cuda_step import all_captured, can_capture
from model.engine.dependent_launch import replay_agrees
from model.engine.device_state import DeviceState, read_result
from model.engine.token_choice import TokenChoice, forbidden_token, read_scores
from model.nn.adapter import Adapter
from model.nn.batch_drafter import BatchDrafter
from model.nn.cuda import agrees, first_line
from model.nn.decoder import Decoder
from model.nn.gpu.operations import Operations
from model.nn.gpu.selection import select_drafter, select_pass
from model.nn.kv_cache import KeyValueCache
from model.nn.kv_slab import KeyValueSlab, SlotCache
from model.nn.step_pass import StepPass

_log = logging.getLogger("rejoinder.model")

_SMALLEST_BUCKET = 256
"""The smallest number of positions that attention covers, if it cannot read lengths on the device. Then there is a
graph for each power of two from here on, and one for the whole context."""

_ALIGNMENT = 64
"""The capacity of a slot is a multiple of this many positions, as attention kernels prefer."""

_MAX_COPY_ROWS = 256
"""Copied tokens are verified in steps of up to this many rows. On an H100 about 295 are the ridge point: above it, each
row takes time."""

MAX_IN_FLIGHT = 4
"""Steps that are launched before the result of the first one is read, at most."""

_HOST_S, _HOST_EACH_S = 2e-4, 7e-5
"""What the host needs for a step, and for each conversation in it: text, queues and scheduling. Measured on one core of
an AMD EPYC (Zen 5): 0.24 ms for one conversation, 0.57 ms for 8, 2.4 ms for 32."""

_LATE_S = 1e-3
"""How late the host may be. So many steps are in flight that the device does not wait for it then."""

_TIMED_PAST, _TIMED_STEPS = 600, 10
"""Earlier tokens of the conversations with which steps are timed at the start, and how many steps are."""


def slot_capacity(context: int, max_drafts: int, num_copies: int, *, branches: bool = True) -> int:
    """Positions of a slot for texts of `context` tokens: the last steps of a full one, several of which are in flight,
    write beyond it."""
    rows, tokens = rows_each(max_drafts, num_copies, branches=branches), max(max_drafts, num_copies) + 1
    return -(-(context + MAX_IN_FLIGHT * tokens + rows) // _ALIGNMENT) * _ALIGNMENT


def rows_each(drafts: int, copies: int, *, branches: bool) -> int:
    """Rows of a conversation in a step: with branches one for each outcome of the drafts."""
    return (num_rows(drafts) if branches else drafts + 1) + copies


def host_seconds(conversations: int) -> float:
    """What the host needs for a step. While it does, the device runs the next ones."""
    return _HOST_S + _HOST_EACH_S * conversations


@dataclass(eq=False)
class Attachment:
    """A conversation whose steps a runner takes. It is a request's next input while that lasts.

    Attributes:
        cache: its cache, which is in a slot.
        drafting: whether drafts are accepted and made.
        settings: how tokens are chosen; None for the likeliest ones.
        attached: whether it still is.
        results: of its steps that have ended, in order.
        drafts, rules: of its next step, if it is restricted (`restrict`).
    """

    runner: CUDAGraphRunner
    cache: SlotCache
    drafting: bool
    settings: TokenSettings | None = None
    attached: bool = True
    results: deque[VerificationResult] = field(default_factory=deque)
    drafts: Sequence[int] = ()
    rules: Sequence[RowRule] = ()

    @property
    def has_room(self) -> bool:
        """Whether the next steps fit into the slot and into the model's positions."""
        return self.runner.has_room(self.cache)

    @property
    def num_drafts(self) -> int:
        """Drafts that its next step verifies, unless the size of the batch changes."""
        return self.runner.chosen_drafts if self.drafting else 0

    def restrict(self, drafts: Sequence[int], rules: Sequence[RowRule]) -> None:
        """See `DeviceSteps`."""
        self.drafts, self.rules = drafts, rules

    @property
    def is_restricted(self) -> bool:
        """Whether each step has to be told what it may choose."""
        return self.settings is not None and self.settings.restricted

    def detach(self) -> None:
        """Take no more steps. The cache holds what was committed."""
        self.attached = False


@dataclass(frozen=True)
class _PendingStep:
    """A step that was launched: for whom, where its result and scores are copied to, and the event that tells when they
    are there."""

    members: tuple[Attachment, ...]
    step: BatchStep
    result: Tensor
    scores: Tensor
    copied: torch.cuda.Event | None


class CUDAGraphRunner:
    """Takes the steps of all attached conversations.

    Args:
        decoder: the model.
        adapter: drafts tokens. Without one the model's own mask token does, if it has one.
        max_drafts: drafts per step, at most.
        slab: where the conversations keep their keys and values.
        num_copies: tokens per step that are copied from the conversation.
        operations: the kernels of its forward pass; plain PyTorch without them.
        acceptance: how often the first, the first two, … drafts are all accepted, which decides how many are made.
        head: drafts in place of the adapter, inside the step.

    Attributes:
        num_drafts: drafts per conversation, by size of a batch.
        step_seconds: how long a replayed step takes, by size of a batch; empty where nothing is replayed.
        state: what steps leave for the next ones.
        choice: chooses tokens that are not simply the likeliest ones; None if no step can.
        chosen_drafts: drafts per conversation in the newest step that `choice` had a part in.
    """

    def __init__(
        self,
        decoder: Decoder,
        adapter: Adapter | None,
        max_drafts: int,
        slab: KeyValueSlab,
        num_copies: int = 0,
        operations: Operations | None = None,
        acceptance: Sequence[float] = (),
        head: BatchDrafter | None = None,
    ) -> None:
        self._decoder, self._slab, self._acceptance = decoder, slab, tuple(acceptance)
        max_drafts = max_drafts if adapter or head or decoder.mask_token is not None else 0
        self._adapter, self._head = adapter if max_drafts and not head else None, head if max_drafts else None
        self._shape = partial(step_shape, slab.keys_values, branches=head is None)
        self.state = DeviceState(slab.keys_values, max_drafts, num_copies)
        shape = self._shape(max_drafts, num_copies, 1)
        largest = self._shape(min(1, max_drafts), 0, slab.num_slots)
        self.rows_each = shape.rows_each
        self._pass: StepPass = select_pass(decoder, self._adapter, shape, operations, [largest])
        self._operations = operations
        usable = operations if self._pass.reads_length else None
        self._drafter = select_drafter(decoder, self._head, usable, slab.num_slots, max_drafts)
        self._launch_kernel = getattr(operations, "launch", None) if self._pass.reads_length else None
        smaller = [] if self._pass.reads_length else _powers_of_two(_SMALLEST_BUCKET, slab.capacity)
        self.buckets = [*smaller, slab.capacity]
        self.sizes = [*_powers_of_two(1, slab.num_slots), slab.num_slots]
        self.num_drafts = dict.fromkeys(self.sizes, max_drafts)
        self.step_seconds: dict[int, float] = {}
        self._steps: dict[tuple[int, int, bool], BatchStep] = {}
        self.chosen_drafts, rows = max_drafts, (max_drafts + 1) * slab.num_slots
        self.choice: TokenChoice | None
        self.choice = TokenChoice(self.state, decoder.config.vocab_size, rows, self._launch_kernel)
        self._pending: deque[_PendingStep] = deque()
        self._in_flight = 2

    def attach(
        self,
        cache: KeyValueCache,
        last: int,
        draft: Draft,
        settings: TokenSettings | None = None,
        *,
        drafting: bool = True,
    ) -> Attachment | None:
        """Take the steps of a conversation from now on. None if its cache is in no slot, or has no room, or if no step
        can choose tokens so.

        Args:
            last: its last committed token, which is not in the cache.
            draft: its drafts.
            settings: how its tokens are chosen; None for the likeliest ones.
        """
        if not isinstance(cache, SlotCache) or (settings is not None and self.choice is None):
            return None
        cache.reserve(0)  # a slot may have become free
        if cache.slot is None or not self.has_room(cache):
            return None
        self.state.set(cache.slot, [*cache.tokens, last], draft, drafting=drafting)
        if self.choice is not None:
            self.choice.set(cache.slot, settings)
        return Attachment(self, cache, drafting, settings)

    def has_room(self, cache: SlotCache) -> bool:
        """Whether the next steps fit into a slot and into the model's positions."""
        ahead = len(cache.tokens) + (self._in_flight - 1) * self.state.max_tokens
        reach = 1 + max(2 * self.state.max_drafts, self.state.num_copies)
        fits = ahead + self.state.max_tokens + self.rows_each <= self._slab.capacity
        return fits and ahead + self.state.max_tokens + reach <= self._decoder.config.context_length

    def step(self, attachments: Sequence[Attachment]) -> list[tuple[Attachment, VerificationResult]]:
        """The results of the next step, for those conversations for which there is one: a conversation that has just
        been attached has none before the steps that were launched earlier have ended.

        The caller commits the tokens to the cache. Later steps are already running when this returns, so the device
        does not wait for the host.
        """
        if any(not attachment.results for attachment in attachments):
            ahead = 1 if any(attachment.is_restricted for attachment in attachments) else self._in_flight
            while len(self._pending) < ahead:
                self._pending.append(self._launch(attachments))
            self._read(self._pending.popleft())
        return [(attachment, attachment.results.popleft()) for attachment in attachments if attachment.results]

    def warm_up(self) -> None:
        """Capture every graph, so that no response waits for it, and choose the number of drafts for each size of a
        batch from the time that the replayed steps take. If that fails, the same steps run without being captured."""
        if not can_capture(self._decoder.device):
            if operations := self._dependent_operations:
                operations.dependent = False  # only replays show that they may be
            return
        self._check_bookkeeping()
        self._check_choice()
        self._check_dependent_launch()
        if not all_captured(self._capture):
            self._steps.clear()
            self.num_drafts = dict.fromkeys(self.sizes, self.state.max_drafts)
            for part in self.state.parts:  # fails if CUDA cannot be used after this
                part.zero_()

    def _capture(self) -> None:
        pool = None
        for size in reversed(self.sizes):  # the largest comes first: later ones reuse its memory
            for drafts in range(self.state.max_drafts, -1, -1):
                pool = self.batch_step(size, drafts).capture(self._slab.capacity, pool)
        times = {(size, drafts): self._replay_seconds(size, drafts) for size, drafts, _ in self._steps}
        self.choose_drafts(lambda size, drafts: max(times[size, drafts], host_seconds(size)))
        chosen = set(self.num_drafts.items())
        self._steps = {key: step for key, step in self._steps.items() if key[:2] in chosen}
        for step in self._steps.values():
            for bucket in reversed(self.buckets):
                pool = step.capture(bucket, pool)
        self._capture_choices(pool)
        self.step_seconds = {size: times[size, drafts] for size, drafts in self.num_drafts.items()}
        self._in_flight = min(MAX_IN_FLIGHT, 2 + int(_LATE_S / self.step_seconds[1]))

    def _capture_choices(self, pool: Any) -> None:
        """Capture the steps that choose tokens. If that fails, such conversations are decoded layer by layer."""
        if os.environ.get("REJOINDER_REPLAYED_CHOICES") == "0":
            self.choice = None
            return
        try:
            for size in reversed(self.sizes):
                for bucket in reversed(self.buckets):
                    pool = self.batch_step(size, self.num_drafts[size], choosing=True).capture(bucket, pool)
        except Exception as problem:  # of Triton, its compiler, the driver, or too little memory
            reason = first_line(problem)
            _log.warning("grammars, sampling and log probabilities are not captured, so they take longer: %s", reason)
            self.choice = None
            self._steps = {key: step for key, step in self._steps.items() if not key[2]}

    def _check_bookkeeping(self) -> None:
        """Use plain PyTorch between the layers of two steps if the kernels fail, or compute something else here."""
        shapes = ((1, self.state.max_drafts), (self.sizes[-1], min(1, self.state.max_drafts)))
        if not agrees(
            lambda: all(self.batch_step(*shape).bookkeeping_agrees() for shape in shapes),
            "the kernels around a step cannot be used here, so steps take longer",
            "their results differ from PyTorch's",
        ):
            self._launch_kernel = None
            self._steps.clear()
            for part in (*self.state.parts, self.state.keys_values):
                part.zero_()

    def _check_choice(self) -> None:
        """Choose tokens in plain PyTorch if the kernel fails, or chooses others here."""
        assert self.choice is not None
        if not agrees(
            self.choice.agrees,
            "the kernel that chooses tokens cannot be used here, so grammars take longer",
            "its tokens differ from PyTorch's",
        ):
            self.choice.launch = None

    @property
    def _dependent_operations(self) -> Any:
        """The kernels of its forward pass if they may overlap."""
        return self._operations if getattr(self._operations, "dependent", False) else None

    def _check_dependent_launch(self) -> None:
        """Start kernels one after the other if steps whose kernels overlap fail, or compute something else here."""
        operations = self._dependent_operations
        if operations is None:
            return
        step = self.batch_step(1, self.state.max_drafts)
        if not agrees(
            lambda: replay_agrees(step, self.state, operations, self._slab.capacity),
            "kernels cannot overlap here, so steps take longer",
            "their results differ",
        ):
            operations.dependent = False
            self._steps.clear()

    def choose_drafts(self, seconds: Callable[[int, int], float]) -> Mapping[int, int]:
        """Choose the number of drafts for each size of a batch.

        Args:
            seconds: how long a step takes, by size of a batch and number of drafts. Where the host takes longest, more
                drafts cost nothing.
        """
        for size in self.sizes:
            times = [seconds(size, drafts) for drafts in range(self.state.max_drafts + 1)]
            self.num_drafts[size] = best_num_drafts(times, self._acceptance)
        return self.num_drafts

    def batch_step(self, size: int, drafts: int, *, choosing: bool = False) -> BatchStep:
        """The step for a batch of this size with this many drafts.

        Args:
            choosing: whether `choice` chooses its tokens. Then nothing is copied: what may follow copies is not known.
        """
        key = (size, drafts, choosing)
        if key not in self._steps:
            copies = self.state.num_copies if size == 1 or size * self.rows_each <= _MAX_COPY_ROWS else 0
            copies = 0 if choosing else copies
            step_pass = self._pass.with_shape(self._shape(drafts, copies, size))
            self._steps[key] = BatchStep(
                self._decoder, self._adapter, step_pass, self.state, drafts, copies, self._head, self._launch_kernel,
                self._drafter, self.choice if choosing else None,
            )  # fmt: skip
        return self._steps[key]

    def _launch(self, members: Sequence[Attachment]) -> _PendingStep:
        """Start a step."""
        size = next(size for size in self.sizes if len(members) <= size)
        choosing = any(member.settings is not None for member in members)
        step = self.batch_step(size, self.num_drafts[size], choosing=choosing)
        step.set_members([member.cache.slot for member in members if member.cache.slot is not None])
        if choosing:
            self._restrict(members, step)
        unread = max(len(member.results) for member in members) + len(self._pending)
        longest = max(len(member.cache.tokens) for member in members)
        needed = longest + unread * self.state.max_tokens + self.rows_each
        bucket = next(bucket for bucket in self.buckets if needed <= bucket)
        return _PendingStep(tuple(members), step, *step.launch(bucket))

    def _restrict(self, members: Sequence[Attachment], step: BatchStep) -> None:
        """Tell a step what it verifies and may choose. Nothing is accepted after the last row with a rule, because what
        fills up its drafts is forbidden."""
        assert self.choice is not None
        k = self.chosen_drafts = step.num_drafts
        restricted = [member for member in members if member.is_restricted]
        if restricted and k:
            slots = [member.cache.slot for member in restricted if member.cache.slot is not None]
            drafts = [[*member.drafts[:k], *_fillers(member, k)] for member in restricted]
            self.state.replace_drafts(slots, drafts)
        rules = [member.rules[: k + 1] if member.is_restricted else () for member in members]
        self.choice.fill(rules, step.num_clean)

    def _read(self, pending: _PendingStep) -> None:
        """Wait for a step's result. Conversations that have left meanwhile get none."""
        if pending.copied is not None:
            pending.copied.synchronize()
        step, origin = pending.step, self._head and self._head.origin
        for n, (member, row) in enumerate(zip(pending.members, pending.result.tolist(), strict=False)):
            if member.attached:
                drafts = step.num_drafts if member.drafting else 0
                result = read_result(row, drafts, self.state, origin or "masked")
                if member.settings is not None and member.settings.num_top is not None:
                    scores = read_scores(
                        pending.scores[n * step.num_clean :], result.committed, member.settings.num_top
                    )
                    result = replace(result, log_probabilities=scores)
                member.results.append(result)

    @torch.inference_mode()
    def _replay_seconds(self, size: int, drafts: int) -> float:
        """How long a replayed step takes, with conversations of a usual length. Leaves the slots empty."""
        step, state = self.batch_step(size, drafts), self.state
        past = min(_TIMED_PAST, self._slab.capacity - _TIMED_STEPS * 2 * state.max_tokens - self.rows_each)
        step.set_members(list(range(size)))
        state.past_length[:size] = max(0, past)
        times = []
        for _ in range(_TIMED_STEPS):
            began = time.perf_counter()
            step.launch(self._slab.capacity)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
        for part in state.parts:
            part.zero_()
        return sorted(times)[len(times) // 2]


def _fillers(member: Attachment, count: int) -> list[int]:
    """What fills up the drafts of a restricted conversation: first a token that its step cannot choose."""
    missing = count - len(member.drafts)
    return [forbidden_token(member.rules[-1]), *[0] * (missing - 1)] if missing > 0 else []


def _powers_of_two(smallest: int, end: int) -> list[int]:
    """The powers of two from `smallest`, which is one, up to but not including `end`."""
    return [1 << n for n in range(smallest.bit_length() - 1, (end - 1).bit_length())]
