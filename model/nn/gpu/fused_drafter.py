"""A block drafter in the step of a GPU, in five kernels and nine for the block: what `BatchDrafter.draft_batch`
computes, with the kernels of layers and of `drafter_operations.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.nn.batch_drafter import BatchDrafter
from model.nn.gpu.drafter_operations import EPS, DrafterOperations
from model.nn.gpu.operations import Operations, Projection


@dataclass(frozen=True)
class _Feedforward:
    """x + D swiglu(G norm(x))."""

    gate_up: Projection
    down: Projection

    @staticmethod
    def of(gate_up: Tensor, down: Tensor) -> _Feedforward:
        half = len(gate_up) // 2
        return _Feedforward(_projection(gate_up, half, half), _projection(down, len(down)))


class FusedDrafter:
    """Drafts for the conversations of a step.

    Args:
        drafter: one that denoises a block.
        norm, eps: of the model's last normalization.
        table: [vocabulary, hidden], its embeddings.
        operations: the kernels of layers.
        own: those of the drafter.
    """

    def __init__(
        self,
        drafter: BatchDrafter,
        norm: Tensor,
        eps: float,
        table: Tensor,
        operations: Operations,
        own: DrafterOperations,
    ) -> None:
        tensors, matrices = drafter.block_tensors, drafter.matrices
        self._drafter, self._norm, self._eps, self._table = drafter, norm, eps, table
        self._do, self._own, self._ones = operations, own, torch.ones_like(tensors["places"][0])
        self._read = _Feedforward.of(matrices["gate_up"], matrices["down"])
        size = len(self._ones)
        itself = torch.eye(size, dtype=norm.dtype, device=norm.device)  # the first row of a block is the state itself
        masks = torch.cat((itself, tensors["masks"]))
        self._masks = _projection(masks, len(masks), bias=tensors["places"].flatten())
        self._layers = [
            (
                _projection(tensors[f"attention{n}"], len(tensors[f"attention{n}"])),
                tensors[f"heads{n}"],
                _Feedforward.of(tensors[f"gate_up{n}"], tensors[f"down{n}"]),
            )
            for n in range(sum(name.startswith("heads") for name in tensors))
        ]

    def draft(
        self,
        tapped: Sequence[Tensor],
        states: Tensor,
        rows: Tensor,
        tokens: Tensor,
        slots: Tensor,
        kept: Tensor,
        result: Tensor,
        count: int,
        unit: int,
    ) -> None:
        """Draft what follows the newest tokens: see `DrafterOperations.read_features` and `.store_drafts`.

        Args:
            count: drafts of each conversation.
        """
        own, drafter, block = self._own, self._drafter, self._drafter.block
        matrices, vocabulary = drafter.matrices, drafter.scoring_rows
        context, z = own.read_features(
            tapped, states, rows, self._norm, self._eps, tokens, slots, self._table, matrices["features"],
            matrices["input"],
        )  # fmt: skip
        state = self._follow(self._read, z)
        x = self._do.project(state, self._masks, len(state), norm=self._ones, eps=EPS).view(-1, state.shape[1])
        for attention, heads, feedforward in self._layers:
            fused = self._do.project(x, attention, len(x), norm=self._ones, eps=EPS)
            x = self._follow(feedforward, own.attend_block(fused, heads, x, block))
        scores = own.score(x, vocabulary, block, count)
        drafts = slots.new_empty(len(slots), count)
        chances = scores.logits.new_empty(len(slots), count)
        for number in range(count):
            of_read, of_denoised = drafter.mix[number]
            choice = own.compare(scores, state, vocabulary, number, count, (of_read, of_denoised))
            if number == count - 1:
                own.store_drafts(choice, drafter.vocabulary, drafts, chances, slots, kept, result, unit)
            else:
                z = own.read_draft(
                    choice, drafter.vocabulary, self._table, state, context, matrices["input"], drafts, chances, number
                )
                state = self._follow(self._read, z)

    def _follow(self, feedforward: _Feedforward, x: Tensor) -> Tensor:
        """x + D swiglu(G norm(x))."""
        inner = self._do.gate_up(x, self._ones, feedforward.gate_up, len(x), EPS)
        return self._do.project(inner, feedforward.down, len(x), residual=x)


def _projection(weight: Tensor, *sizes: int, bias: Tensor | None = None) -> Projection:
    return Projection(weight.contiguous(), bias, None, None, sizes)
