"""A whole step of speculative decoding as one CUDA graph: the layers, verification, and the drafts of the next step are
computed from what the step before left on the device. The graph is captured once and replayed.

It serves a single conversation that decodes greedily. Shared forward passes, and sampling, go through `Decoder.run`.
All shapes are fixed: k drafts, c tokens copied from the conversation, and a branch of k noise rows for each outcome of
the drafts make (k + 1)² + c rows, and there may be padding. The device does the n-gram look-up itself, because the host
is one step behind. Missing drafts and copies are zeros, which are verified like any others. The host gets one small
copy per step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from model.decode.draft import NO_DRAFT, Draft
from model.decode.ngram import NGRAM_SIZE
from model.decode.verify import VerificationResult, verification_mask
from model.nn.adapter import Adapter
from model.nn.decoder import Decoder
from model.nn.gpu.operations import Operations
from model.nn.gpu.selection import select_pass
from model.nn.kv_cache import KeyValueCache
from model.nn.step_pass import Predictions, StepShape

_SMALLEST_BUCKET = 256
"""The smallest number of positions that attention covers. There is a graph for each power of two from here on, and one
for the whole context."""

_ALIGNMENT = 64
"""The capacity is a multiple of this many positions, as attention kernels prefer."""

_CONFIDENCE_UNIT = 1_000_000
"""Confidence is copied to the host as an integer in these parts, among the token ids."""


@dataclass
class _State:
    """What one step leaves for the next, on the device."""

    past_length: Tensor
    last: Tensor
    drafts: Tensor
    copied: Tensor
    history: Tensor
    """[capacity] int64: every token of the conversation, the last one at `past_length`."""
    result: Tensor
    """int64, the only thing that is copied to the host: how many drafts or copied tokens were accepted, whether copied
    tokens were, the base model's tokens along them (max(k, c) + 1), k drafts, and their confidence in millionths."""


@dataclass(frozen=True)
class _PendingStep:
    """A step that was launched: where its result is copied to, and the event that tells when it is there."""

    result: Tensor
    copied: torch.cuda.Event | None


class CUDAGraphRunner:
    """Runs the steps of one conversation at a time.

    Args:
        decoder: the model.
        adapter: drafts tokens. Without one the model's own mask token does, if it has one.
        num_drafts: drafts per step.
        context: tokens that a conversation may span.
        num_copies: tokens per step that are copied from the conversation.
        min_rows: a step with fewer rows is padded. A matrix multiplication of another size may use another kernel,
            which rounds differently, so runners whose texts are to be equal have equally many rows.
        operations: the kernels of its forward pass; plain PyTorch without them.

    Attributes:
        num_rows: rows of a step.
    """

    def __init__(
        self,
        decoder: Decoder,
        adapter: Adapter | None,
        num_drafts: int,
        context: int,
        num_copies: int = 0,
        min_rows: int = 0,
        operations: Operations | None = None,
    ) -> None:
        can_draft = adapter is not None or decoder.mask_token is not None
        self._decoder, self._adapter, self._num_drafts = decoder, adapter, num_drafts if can_draft else 0
        device, k, c = decoder.device, self._num_drafts, num_copies
        self._num_copies, self._max_tokens = c, max(k, c) + 1
        needed_rows = (k + 1) ** 2 + c
        self.num_rows = max(min_rows, needed_rows)
        # The last steps of a full context, of which one always runs ahead, write that many rows after it.
        capacity = -(-(context + 2 * self.num_rows) // _ALIGNMENT) * _ALIGNMENT
        shape = (2, len(decoder.layers), decoder.config.kv_heads, capacity, decoder.config.head_dim)
        self._keys_values = torch.zeros(shape, dtype=decoder.dtype, device=device)
        self._keys, self._values = ([*part] for part in self._keys_values)
        self._capacity = capacity
        branches = [r + 1 + s for r in range(k + 1) for s in range(k)]
        padding = [0] * (self.num_rows - needed_rows)
        self._offsets = torch.tensor([*range(k + 1), *range(1, c + 1), *branches, *padding], device=device)
        mask = torch.eye(self.num_rows, dtype=torch.bool)  # no row attends to a padding row but itself
        mask[:needed_rows, :needed_rows] = verification_mask(k, c, k)
        step = StepShape(self._keys_values, mask.to(device), k + 1 + c)
        self._pass = select_pass(decoder, adapter, step, operations)
        smaller = [] if self._pass.reads_length else _powers_of_two(_SMALLEST_BUCKET, capacity)
        self._buckets = [*smaller, capacity]

        def integers(count: int) -> Tensor:
            return torch.zeros(count, dtype=torch.long, device=device)

        self._state = _State(
            past_length=integers(1), last=integers(1), drafts=integers(k), copied=integers(c),
            history=integers(capacity + self._max_tokens), result=integers(2 + self._max_tokens + 2 * k),
        )  # fmt: skip
        self._pending: _PendingStep | None = None
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._pool: Any = None
        self._cache: KeyValueCache | None = None
        self._attached_from = 0

    def attach(self, cache: KeyValueCache, last: int, draft: Draft) -> None:
        """Take over a conversation: its keys and values, its last committed token, its drafts."""
        count = len(cache.tokens)
        for own, source in zip((*self._keys, *self._values), cache.tensors(), strict=True):
            own[:, :count] = source[:, :count]
        drafts = (*draft.tokens[: self._num_drafts], *[0] * (self._num_drafts - len(draft.tokens)))
        self._state.past_length.fill_(count)
        self._state.last.fill_(last)
        self._state.drafts.copy_(torch.tensor(drafts, dtype=torch.long))
        self._state.history[: count + 1].copy_(torch.tensor([*cache.tokens, last], dtype=torch.long))
        self._look_up(self._capacity)
        self._cache, self._attached_from, self._pending = cache, count, None
        cache.attached_from = count

    def detach(self) -> None:
        """Copy the conversation's keys and values back to its own cache, up to the last committed token."""
        cache = self._cache
        if cache is None:
            return
        count, start = len(cache.tokens), self._attached_from
        self._cache = self._pending = cache.attached_from = None
        try:
            cache.overwrite(start, count, [own[:, start:count] for own in (*self._keys, *self._values)])
        except Exception:  # there is no memory for them, so they will be read again
            cache.truncate(start)
            raise

    def warm_up(self) -> None:
        """Capture every graph, so that no response waits for it. The largest comes first: later ones reuse its
        memory."""
        if self._decoder.device.type == "cuda":
            for bucket in reversed(self._buckets):
                self._graph(bucket)

    def fits(self, cache: KeyValueCache) -> bool:
        """Whether two more steps fit into the memory and into the model's positions."""
        count, max_positions = len(cache.tokens), self._decoder.config.context_length
        reach = self._max_tokens + max(2 * self._num_drafts, self._num_copies) + 1
        return count + 2 * self.num_rows <= self._capacity and count + reach <= max_positions

    @torch.inference_mode()
    def step(self) -> VerificationResult:
        """The result of the next step. The caller commits its tokens to the cache; their keys and values stay here. The
        step after it is already running when this returns, so the device does not wait for the host."""
        current = self._pending or self._launch(self.num_rows)
        self._pending = self._launch(2 * self.num_rows)
        if current.copied is not None:
            current.copied.synchronize()
        n, k = self._max_tokens, self._num_drafts
        accepted, copies_accepted, *tokens = current.result.tolist()
        base, drafts, confidence = tokens[:n], tokens[n:][:k], tokens[n + k :]
        draft = Draft(tuple(drafts), None, tuple(part / _CONFIDENCE_UNIT for part in confidence))
        return VerificationResult(
            tuple(base[: accepted + 1]), tuple(range(accepted + 1)), NO_DRAFT if copies_accepted else draft
        )

    def _launch(self, max_new: int) -> _PendingStep:
        """Start a step, and the copy of its result. It attends to at most `max_new` positions after the committed
        ones."""
        assert self._cache is not None
        needed = len(self._cache.tokens) + max_new
        bucket = next(size for size in self._buckets if needed <= size)
        if self._decoder.device.type != "cuda":
            self._run(bucket)
            return _PendingStep(self._state.result.clone(), None)
        self._graph(bucket).replay()
        result = self._state.result.to("cpu", non_blocking=True)
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record()
        return _PendingStep(result, copied)

    def _graph(self, bucket: int) -> torch.cuda.CUDAGraph:
        """The captured step for a bucket. Capturing runs the step, so the state is restored afterwards."""
        if bucket not in self._graphs:
            state = self._state
            parts = (state.past_length, state.last, state.drafts, state.copied, state.history, state.result)
            saved = [part.clone() for part in parts]
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(2):
                    self._run(bucket)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                self._run(bucket)
            self._pool = graph.pool()
            for part, value in zip(parts, saved, strict=True):
                part.copy_(value)
            self._graphs[bucket] = graph
        return self._graphs[bucket]

    def _run(self, bucket: int) -> None:
        """The step itself: fixed shapes, and no synchronization with the host."""
        decoder, state = self._decoder, self._state
        num_clean = self._num_drafts + 1 + self._num_copies
        positions = state.past_length + self._offsets
        placeholders = state.last.expand(self.num_rows - num_clean)
        x = decoder.embedding(torch.cat((state.last, state.drafts, state.copied, placeholders)))
        if self._num_drafts:
            x[num_clean:] = self._mask_embedding()
        self._accept(self._pass.run(x, positions, state.past_length, bucket))
        self._look_up(bucket)

    def _accept(self, predictions: Predictions) -> None:
        """Find how many drafts the base model agrees with, or copied tokens if those are more. Its next token, and the
        drafts of the branch that saw exactly the accepted ones, go into the state."""
        state, k, c, best = self._state, self._num_drafts, self._num_copies, predictions.tokens
        along_drafts, along_copies = best[: k + 1], torch.cat((best[:1], best[k + 1 : k + 1 + c]))
        accepted_drafts = _accepted_length(state.drafts, along_drafts)
        accepted_copies = _accepted_length(state.copied, along_copies)
        use_copies = accepted_copies > accepted_drafts
        accepted = torch.where(use_copies, accepted_copies, accepted_drafts)
        base = torch.where(use_copies, _padded(along_copies, self._max_tokens), _padded(along_drafts, self._max_tokens))
        branch = k + 1 + c + accepted_drafts * k + torch.arange(k, device=best.device)
        drafts = torch.where(use_copies, 0, best[branch])  # no branch saw the copied tokens
        confidence = predictions.confidence[branch]
        state.result.copy_(
            torch.cat((accepted, use_copies.long(), base, drafts, (confidence * _CONFIDENCE_UNIT).long()))
        )
        if c:
            self._move_copies(use_copies)
        new = torch.arange(1, self._max_tokens + 1, device=best.device)
        state.history.index_copy_(0, state.past_length + new, base)
        state.last.copy_(base[accepted])
        state.drafts.copy_(drafts)
        state.past_length.add_(accepted + 1)

    def _move_copies(self, use_copies: Tensor) -> None:
        """If copied tokens were accepted, move their keys and values to where the drafts' were."""
        offsets = torch.arange(1, self._num_copies + 1, device=use_copies.device)
        targets = self._state.past_length + offsets
        sources = targets + use_copies * self._num_drafts
        self._keys_values.index_copy_(3, targets, self._keys_values.index_select(3, sources))

    def _look_up(self, bucket: int) -> None:
        """Copy what followed the newest n-gram's previous occurrence (as `NgramLookup` does on the host)."""
        state, c = self._state, self._num_copies
        if not c:
            return
        positions = torch.arange(bucket, device=state.past_length.device)
        start = state.past_length + 1 - NGRAM_SIZE
        matches = positions < start
        for n in range(NGRAM_SIZE):
            newest = state.history[(start + n).clamp(min=0)]
            matches &= state.history[n : bucket + n] == newest
        previous = torch.where(matches, positions, -1).amax(0, keepdim=True)
        following = previous + NGRAM_SIZE + torch.arange(c, device=positions.device)
        following = following.clamp(max=len(state.history) - 1)
        valid = (previous >= 0) & (following <= state.past_length)
        state.copied.copy_(torch.where(valid, state.history[following], 0))

    def _mask_embedding(self) -> Tensor:
        """The embedding of noise rows."""
        if self._adapter is not None:
            return self._adapter.mask
        return self._decoder.embedding(torch.full_like(self._state.last, self._decoder.mask_token or 0))


def _accepted_length(candidates: Tensor, best: Tensor) -> Tensor:
    """How many candidate tokens, from the first, are what the rows before them predict: [1]."""
    return (candidates == best[: len(candidates)]).long().cumprod(0).sum(0, keepdim=True)


def _powers_of_two(smallest: int, end: int) -> list[int]:
    """The powers of two from `smallest`, which is one, up to but not including `end`."""
    return [1 << n for n in range(smallest.bit_length() - 1, (end - 1).bit_length())]


def _padded(tokens: Tensor, length: int) -> Tensor:
    return torch.nn.functional.pad(tokens, (0, length - len(tokens)))
