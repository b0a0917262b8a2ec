"""The Triton kernel of `nn/ragged.py`. Importing this module needs Triton; `TRITON_INTERPRET` is as in
`triton_operations.py`."""

# mypy: ignore-errors

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from model.nn.gpu.kernels import _columns_of, _dot
from model.nn.gpu.tiling import KEYS, padded_rank
from model.nn.ragged import RaggedRows


@triton.jit
def attend_ragged(
    query, keys, values, tiles, mask, out, stride, capacity, scale,
    HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr, PRECISE: tl.constexpr,
):  # fmt: skip
    """Attention of a tile of a conversation's rows of one query head. Grid: (tiles, heads). The queries of a row begin
    `stride` numbers after those of the row before.

    A row's sums are in an order that depends on its position in the text alone, so its result does not depend on the
    other rows of the batch. Sums are in float32 (online softmax, FlashAttention, arXiv 2205.14135).
    """
    tile, head = tl.program_id(0), tl.program_id(1)
    own = tiles + tile * 6
    first, slot, own_mask = tl.load(own), tl.load(own + 4), tl.load(own + 5)
    row, rows, past = tl.load(own + 1).to(tl.int32), tl.load(own + 2).to(tl.int32), tl.load(own + 3).to(tl.int32)
    m, d = row + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (m[:, None] < rows) & (d[None, :] < HEAD_DIM)
    column = head * HEAD_DIM + d[None, :]
    queries = tl.load(query + (first + m)[:, None] * stride + column, mask=inside, other=0.0)
    own_head = (slot * (HEADS // GROUP) + head // GROUP) * capacity * HEAD_DIM
    own_keys, own_values = keys + own_head, values + own_head
    masked_rows, causal_to = rows, tl.full((ROWS,), -1, tl.int32)
    end = past + rows
    if own_mask < 0:
        masked_rows, causal_to = rows * 0, m
        end = past + min(row + ROWS, rows)
    highest = tl.full((ROWS,), float("-inf"), tl.float32)
    weight, total = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, end, KEYS):
        n = start + tl.arange(0, KEYS)
        part = _columns_of(own_keys, n, d, HEAD_DIM, end, HEAD_DIM)
        scores = _dot(queries, part, tl.zeros((ROWS, KEYS), tl.float32), PRECISE) * scale
        other = n - past
        masked = (m[:, None] < rows) & (other[None, :] >= 0) & (other[None, :] < masked_rows)
        attended = tl.load(mask + own_mask + m[:, None] * rows + other[None, :], mask=masked, other=0) != 0
        attended = attended | (other[None, :] < 0) | (other[None, :] <= causal_to[:, None])
        scores = tl.where((n < end)[None, :] & attended, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        shares, fade = tl.exp(scores - finite[:, None]), tl.exp(highest - finite)
        present = (n[:, None] < end) & (d[None, :] < HEAD_DIM)
        part = tl.load(own_values + n[:, None] * HEAD_DIM + d[None, :], mask=present, other=0.0)
        total = _dot(shares.to(values.dtype.element_ty), part, total * fade[:, None], PRECISE)
        weight = weight * fade + tl.sum(shares, 1)
        highest = higher
    place = out + (first + m)[:, None] * (HEADS * HEAD_DIM) + column
    tl.store(place, (total / weight[:, None]).to(out.dtype.element_ty), mask=inside)


class TritonAttention:
    """Implements `RaggedAttention` on a GPU, or in the interpreter: one kernel for all conversations."""

    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
        """Start a kernel. Overridden where launches are counted or compiled instead."""
        kernel[grid](*arguments, **constants)

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, rows: RaggedRows) -> Tensor:
        (_, heads, head_dim), (_, kv_heads, capacity, _) = query.shape, keys.shape
        if query.stride()[1:] != (head_dim, 1):
            query = query.contiguous()
        out = query.new_empty(len(query), heads * head_dim)
        warps = 8 if rows.tile_rows == 64 else 4  # with four, the registers of 64 rows of 128 numbers do not fit
        self.launch(
            attend_ragged, (len(rows.tiles), heads),
            query, keys, values, rows.tiles, rows.packed_mask, out, query.stride(0), capacity, head_dim**-0.5,
            HEADS=heads, GROUP=heads // kv_heads, HEAD_DIM=head_dim, WIDTH=padded_rank(head_dim), ROWS=rows.tile_rows,
            KEYS=KEYS, PRECISE=not isinstance(attend_ragged, triton.JITFunction) or query.dtype == torch.float32,
            num_warps=warps, num_stages=2,
        )  # fmt: skip
        return out
