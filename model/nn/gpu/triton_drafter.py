"""Launches the Triton kernels of a block drafter. Importing this module needs Triton; `TRITON_INTERPRET` is as in
`triton_operations.py`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
from torch import Tensor

from model.nn.block_drafter import HEAD_SIZE, KV_SHARE, NEAR
from model.nn.gpu import drafter_kernels
from model.nn.gpu.drafter_operations import EPS, Choice, Scores
from model.nn.gpu.tiling import HEAD_COLUMNS, depth_step, padded_rows
from model.nn.gpu.triton_operations import TritonOperations, is_precise

_COLUMNS = 16
"""Columns of a tile: the matrices are small, and more programs read them faster."""

_TILES = 32
"""Tiles of the vocabulary that a program merges at a time."""


class TritonDrafterOperations:
    """Implements `DrafterOperations`, in the stream of some `TritonOperations` and with their counters."""

    def __init__(self, operations: TritonOperations) -> None:
        self._launch, self._counters = operations.launch, operations.counters

    def read_features(
        self,
        tapped: Sequence[Tensor],
        states: Tensor,
        rows: Tensor,
        norm: Tensor,
        eps: float,
        tokens: Tensor,
        slots: Tensor,
        table: Tensor,
        features: Tensor,
        inputs: Tensor,
    ) -> tuple[Tensor, Tensor]:
        (n,), (size, _), hidden = rows.shape, features.shape, states.shape[1]
        padded = padded_rows(n)
        grid = (triton.cdiv(size, _COLUMNS), len(tapped) + 2, triton.cdiv(n, padded))
        context, z = (states.new_empty(n, size) for _ in range(2))
        partials = states.new_empty(grid[0] * grid[1] * grid[2] * padded * (_COLUMNS + 2), dtype=torch.float32)
        self._launch(
            drafter_kernels.read_features, grid,
            tapped[0], tapped[-1], states, norm, rows, tokens, slots, table, features, inputs, context, z, partials,
            self._counters, n, hidden, size, eps, EPS,
            TAPS=len(tapped), ROWS=padded, COLUMNS=_COLUMNS, DEPTH=depth_step(padded, states.itemsize),
            PRECISE=is_precise(states), num_stages=4,
        )  # fmt: skip
        return context, z

    def attend_block(self, fused: Tensor, weight: Tensor, residual: Tensor, block: int) -> Tensor:
        rows, size = residual.shape
        padded = 16 if rows <= 16 else 32
        out = torch.empty_like(residual)
        grid = (triton.cdiv(size, _COLUMNS), triton.cdiv(rows // block, padded // block))
        self._launch(
            drafter_kernels.attend_block, grid,
            fused, weight, residual, out, rows // block, HEAD_SIZE**-0.5,
            BLOCK=block, HEADS=size // HEAD_SIZE, KV_HEADS=size // HEAD_SIZE // KV_SHARE, HEAD_DIM=HEAD_SIZE,
            ROWS=padded, COLUMNS=_COLUMNS, PRECISE=is_precise(fused), num_stages=3,
        )  # fmt: skip
        return out

    def score(self, x: Tensor, vocabulary: Tensor, block: int, count: int) -> Scores:
        rows, (words, size) = len(x) // block * count, vocabulary.shape
        padded, tiles = padded_rows(rows), triton.cdiv(words, HEAD_COLUMNS)
        logits, highest = (x.new_empty(rows, width, dtype=torch.float32) for width in (words, tiles))
        self._launch(
            drafter_kernels.score, (tiles, triton.cdiv(rows, padded)),
            x, vocabulary, logits, highest, rows, block, count, words, size, EPS,
            ROWS=padded, COLUMNS=HEAD_COLUMNS, DEPTH=depth_step(padded, x.itemsize), PRECISE=is_precise(x),
            num_stages=4,
        )  # fmt: skip
        return Scores(logits, highest)

    def compare(
        self, scores: Scores, state: Tensor, vocabulary: Tensor, number: int, count: int, mix: tuple[float, float]
    ) -> Choice:
        n, (words, size), parts = len(state), vocabulary.shape, scores.highest.shape[1]
        tiles = triton.cdiv(words, HEAD_COLUMNS)
        best, weights = (scores.logits.new_empty(n, tiles) for _ in range(2))
        index = scores.logits.new_empty(n, tiles, dtype=torch.int32)
        self._launch(
            drafter_kernels.compare, (tiles, n),
            scores.logits, scores.highest, state, vocabulary, best, index, weights, number, count, parts, words, size,
            EPS, NEAR, *mix, COLUMNS=HEAD_COLUMNS, DEPTH=64, PARTS=triton.next_power_of_2(parts),
        )  # fmt: skip
        return Choice(best, index, weights)

    def read_draft(
        self,
        choice: Choice,
        words: Tensor,
        table: Tensor,
        state: Tensor,
        context: Tensor,
        inputs: Tensor,
        drafts: Tensor,
        chances: Tensor,
        number: int,
    ) -> Tensor:
        (n, size), hidden = state.shape, table.shape[1]
        padded, z = padded_rows(n), torch.empty_like(context)
        self._launch(
            drafter_kernels.read_draft, (triton.cdiv(size, _COLUMNS), triton.cdiv(n, padded)),
            choice.best, choice.index, choice.weights, words, table, state, context, inputs, drafts, chances, z, n,
            choice.best.shape[1], number, drafts.shape[1], hidden, size, EPS,
            ROWS=padded, COLUMNS=_COLUMNS, DEPTH=depth_step(padded, state.itemsize), TILES=_TILES,
            PRECISE=is_precise(state), num_stages=4,
        )  # fmt: skip
        return z

    def store_drafts(
        self,
        choice: Choice,
        words: Tensor,
        drafts: Tensor,
        chances: Tensor,
        slots: Tensor,
        kept: Tensor,
        result: Tensor,
        unit: int,
    ) -> None:
        width, max_drafts = result.shape[1], kept.shape[1]
        self._launch(
            drafter_kernels.store_drafts, (len(slots),),
            choice.best, choice.index, choice.weights, words, drafts, chances, slots, kept, result,
            choice.best.shape[1], drafts.shape[1], max_drafts, width - 2 * max_drafts, width, unit,
            TILES=_TILES, MAX=triton.next_power_of_2(max_drafts),
        )  # fmt: skip
