"""A step of speculative decoding for a batch of conversations as one CUDA graph: the layers, verification, and the
drafts of the next step are computed from what the step before left on the device.

All shapes are fixed: for each conversation k drafts, c tokens copied from its text, and a branch of k noise rows for
each outcome of the drafts make (k + 1)² + c rows. With a draft head there are no branches: it drafts when the step
knows what is accepted. The device does the n-gram look-up itself: the host is behind.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from model.decode.device_steps import MAX_TOP
from model.decode.verify import verification_mask
from model.engine.cuda_step import CapturedFunction
from model.engine.device_state import CONFIDENCE_UNIT, DeviceState
from model.engine.fused_bookkeeping import Begun, FusedBookkeeping, Launch
from model.engine.token_choice import TokenChoice
from model.nn.adapter import Adapter
from model.nn.batch_drafter import BatchDrafter
from model.nn.decoder import Decoder, row_features
from model.nn.gpu.fused_drafter import FusedDrafter
from model.nn.step_pass import StepPass, StepShape


def step_shape(keys_values: Tensor, num_drafts: int, num_copies: int, batch: int, *, branches: bool) -> StepShape:
    """The rows of a step.

    Args:
        branches: whether noise rows draft.
    """
    mask = verification_mask(num_drafts, ((0, num_copies),), num_drafts if branches else 0).to(keys_values.device)
    return StepShape(keys_values, mask, num_drafts + 1 + num_copies, batch)


class BatchStep:
    """The step for a number of conversations with a number of drafts.

    Args:
        step_pass: runs the layers and the head; its shape is `step_shape`.
        num_drafts, num_copies: drafts and copied tokens per conversation.
        head: drafts in place of noise rows.
        launch: starts the kernels of `FusedBookkeeping`; plain PyTorch without it.
        drafter: the head in kernels; plain PyTorch without it.
        choice: chooses the tokens. Without it they are the likeliest ones.

    Attributes:
        batch: conversations.
        num_drafts: drafts per conversation.
        num_clean: clean rows of a conversation.
        slots: [batch] int64, the slots of the conversations. The last slot, which is nobody's, fills up the batch.
    """

    def __init__(
        self,
        decoder: Decoder,
        adapter: Adapter | None,
        step_pass: StepPass,
        state: DeviceState,
        num_drafts: int,
        num_copies: int,
        head: BatchDrafter | None = None,
        launch: Launch | None = None,
        drafter: FusedDrafter | None = None,
        choice: TokenChoice | None = None,
    ) -> None:
        self._drafter, self._choice = drafter, choice
        self._decoder, self._adapter, self._pass, self._state = decoder, adapter, step_pass, state
        self._head = head if num_drafts else None
        shape, k, c, device = step_pass.shape, num_drafts, num_copies, decoder.device
        self.batch, self.num_drafts, self._num_copies = shape.batch, num_drafts, num_copies
        self.num_clean = shape.num_clean
        scores = 0 if choice is None else shape.first_draft
        self._scores = torch.zeros(scores, 1 + 2 * MAX_TOP, dtype=torch.int32, device=device)
        nobody = shape.keys_values.shape[2] - 1
        self.slots = torch.full((self.batch,), nobody, dtype=torch.long, device=device)
        self._members: list[int] = []
        self._clean_offsets = torch.tensor([*range(k + 1), *range(1, c + 1)], device=device)
        branches = [r + 1 + s for r in range(k + 1) for s in range(k)] if head is None else []
        self._noise_offsets = torch.tensor(branches, dtype=torch.long, device=device)
        self._result = torch.zeros(
            self.batch, 2 + state.max_tokens + 2 * state.max_drafts, dtype=torch.long, device=device
        )
        self._first_rows = torch.arange(self.batch, device=device) * len(self._clean_offsets)
        table = getattr(decoder.embedding, "__self__", None)
        self._fused: FusedBookkeeping | None = None
        if launch is not None and isinstance(table, Tensor):
            offsets = [*range(k + 1), *range(1, c + 1)], branches
            mask = self._mask_embedding().reshape(-1) if branches else None
            self._fused = FusedBookkeeping(launch, state, shape, k, c, offsets, table, mask)
        self._functions: dict[int, CapturedFunction] = {}

    @property
    def num_rows(self) -> int:
        """Rows of a step."""
        return self._pass.shape.num_rows

    def set_members(self, slots: list[int]) -> None:
        """Choose the conversations of the next steps, at most `batch`."""
        if slots != self._members:
            nobody = self._state.last.shape[0] - 1
            padded = [*slots, *[nobody] * (self.batch - len(slots))]
            self.slots.copy_(torch.tensor(padded))
            self._members = list(slots)

    @torch.inference_mode()
    def launch(self, bucket: int) -> tuple[Tensor, Tensor, torch.cuda.Event | None]:
        """Start the step, and the copies of its result (`DeviceState.accept`) and scores (`TokenChoice.choose`) to the
        host. The event tells when they are there.

        Args:
            bucket: the number of positions that attention covers, if it does not read the lengths on the device.
        """
        self._captured(bucket)()
        result, scores = (part.to("cpu", non_blocking=True, copy=True) for part in (self._result, self._scores))
        if self._decoder.device.type != "cuda":
            return result, scores, None
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record()
        return result, scores, copied

    def capture(self, bucket: int, pool: Any) -> Any:
        """Capture the graph for a bucket: see `CapturedFunction.capture`. The step runs on nobody's slot."""
        self.set_members([])
        return self._captured(bucket).capture(pool)

    def _captured(self, bucket: int) -> CapturedFunction:
        if bucket not in self._functions:
            self._functions[bucket] = CapturedFunction(partial(self.run, bucket), self._decoder.device)
        return self._functions[bucket]

    def run(self, bucket: int) -> None:
        """The step itself: fixed shapes, and no synchronization with the host."""
        decoder, state, slots, k = self._decoder, self._state, self.slots, self.num_drafts
        begun = self.begin() if self._fused is None else self._fused.begin(slots)
        tapped: list[Tensor] | None = None if self._head is None else []
        states = self._pass.states(begun.x, begun.positions, begun.past, slots, bucket, tapped, begun.places)
        if self._choice is None:
            predicted = self._pass.predict(states)
        else:
            logits = self._pass.logits(states)
            predicted = self._choice.choose(logits, begun.places.slots, begun.positions, self._scores)
        settle = self.settle if self._fused is None else self._fused.settle
        rows = settle(slots, begun, predicted.tokens, predicted.confidence, self._result)
        if self._head is None or tapped is None:
            return
        if self._drafter is not None:
            self._drafter.draft(tapped, states, rows, state.last, slots, state.drafts, self._result, k, CONFIDENCE_UNIT)
        else:
            last = decoder.normalize(states[rows], decoder.norm)
            features = row_features([part[rows] for part in tapped], last)
            drafts, confidence = self._head.draft_batch(features, state.last[slots], k)
            state.set_drafts(slots, drafts, confidence, self._result)

    def begin(self) -> Begun:
        """The rows of the step, in plain PyTorch."""
        decoder, state, slots, k = self._decoder, self._state, self.slots, self.num_drafts
        past, last = state.past_length[slots], state.last[slots][:, None]
        clean = torch.cat((last, state.drafts[slots, :k], state.copied[slots, : self._num_copies]), 1)
        tokens = torch.cat((clean.flatten(), last.expand(-1, len(self._noise_offsets)).flatten()))
        positions = torch.cat(
            ((past[:, None] + self._clean_offsets).flatten(), (past[:, None] + self._noise_offsets).flatten())
        )
        x = decoder.embedding(tokens)
        if len(self._noise_offsets):
            x[clean.numel() :] = self._mask_embedding()
        return Begun(tokens, positions, self._pass.shape.places(past, slots), past, x)

    def settle(self, slots: Tensor, begun: Begun, predicted: Tensor, confidence: Tensor, result: Tensor) -> Tensor:
        """What is accepted and looked up, in plain PyTorch: see `FusedBookkeeping.settle`."""
        state, count = self._state, len(self._clean_offsets)
        clean = begun.tokens[: self.batch * count].view(self.batch, count)
        accepted = state.accept(slots, begun.past, clean[:, 1:], predicted, confidence, self.num_drafts)
        result.copy_(accepted.result)
        state.look_up(slots, self._pass.shape.capacity)
        return self._first_rows + accepted.row

    @torch.inference_mode()
    def bookkeeping_agrees(self) -> bool:
        """Whether the kernels compute what plain PyTorch does, for random texts of three tokens. Leaves the slots
        empty."""
        fused, state, shape = self._fused, self._state, self._pass.shape
        if fused is None:
            return True
        draw, most = torch.Generator().manual_seed(0), state.history.shape[1] - state.max_tokens
        parts = (*state.parts, state.keys_values, self._result)

        def three(like: Tensor) -> Tensor:
            return torch.randint(1, 4, like.shape, generator=draw).to(like)

        members = list(range(min(self.batch, len(state.last))))
        self.set_members(members)
        for part in (state.last, state.drafts, state.copied, state.history):
            part.copy_(three(part))
        state.drafting.copy_(torch.arange(len(state.drafting)) % 3 != 1)
        lengths = torch.randint(0, min(most, 3000), state.last.shape, generator=draw)
        state.past_length.copy_(lengths).mul_((torch.arange(len(lengths)) < len(lengths) - 1).to(lengths))
        state.keys_values.copy_(torch.randn(state.keys_values.shape, generator=draw))
        predicted = three(state.last.new_empty(shape.num_rows))
        confidence = torch.rand(shape.num_rows, generator=draw).to(state.last.device)
        before, found = [part.clone() for part in parts], []
        for begin, settle in ((self.begin, self.settle), (lambda: fused.begin(self.slots), fused.settle)):
            for part, kept in zip(parts, before, strict=True):
                part.copy_(kept)
            begun = begin()
            rows = settle(self.slots, begun, predicted, confidence, self._result)
            made = (begun.tokens, begun.positions, begun.places.slots, begun.places.cells, begun.past, begun.x, rows)
            found.append([part.clone() for part in (*made, *parts)])
        for part in parts:
            part.zero_()
        return all(torch.equal(one, other) for one, other in zip(*found, strict=True))

    def _mask_embedding(self) -> Tensor:
        """The embedding of noise rows."""
        if self._adapter is not None:
            return self._adapter.mask
        return self._decoder.embedding(torch.full_like(self.slots[:1], self._decoder.mask_token or 0))
