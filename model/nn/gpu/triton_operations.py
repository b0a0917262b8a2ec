"""Launches the Triton kernels. Importing this module needs Triton.

With `TRITON_INTERPRET=1` in the environment when it is imported, the kernels are interpreted on the CPU: their results
can be tested without a GPU.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from model.nn.gpu import attention_kernel, block_kernels, kernels
from model.nn.gpu.block_launches import GATE_UP_COLUMNS, block_constants, block_stages, used_splits
from model.nn.gpu.operations import Projection, Weight
from model.nn.gpu.tiling import (
    HEAD_COLUMNS,
    KEYS,
    POSITIONS,
    Tiling,
    UnsupportedShape,
    depth_step,
    padded_rank,
    padded_rows,
    query_rows,
)
from model.nn.rotary import RotaryEmbedding
from model.nn.step_pass import StepShape

INTERPRETED = not isinstance(kernels.project, triton.JITFunction)
"""Whether the kernels run in Triton's interpreter."""

_MAX_TILES = 16_384
"""Tiles or heads of a kernel whose parts are added up."""


class TritonOperations:
    """Implements `Operations` on a GPU, or in the interpreter. For one stream: its kernels share counters.

    Args:
        dependent: see the attribute. It has no effect before compute capability 9.0.

    Attributes:
        counters: int32, zeros between two kernels.
        dependent: whether a kernel's programs may start before the kernel before has ended (programmatic dependent
            launch). They wait for it before they read anything.
    """

    def __init__(self, device: torch.device, *, dependent: bool = False) -> None:
        self.counters = torch.zeros(_MAX_TILES, dtype=torch.int32, device=device)
        self.dependent = dependent and torch.cuda.get_device_capability(device) >= (9, 0)

    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
        """Start a kernel."""
        self.start(kernel, grid, arguments, constants | dependence(self.dependent))

    def start(self, kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], constants: dict[str, Any]) -> None:
        """Start a kernel with all of its constants. Overridden where launches are counted or compiled instead."""
        kernel[grid](*arguments, **constants)

    def project(
        self,
        x: Tensor,
        projection: Projection,
        first_draft: int,
        *,
        norm: Tensor | None = None,
        eps: float = 0.0,
        residual: Tensor | None = None,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        weight, p = projection.weight, projection
        (rows, depth), columns = x.shape, len(weight)
        padded, rank = padded_rows(rows), padded_rank(p.rank)
        row_tiles = triton.cdiv(rows, padded)
        tiling = Tiling.of(p.sizes, depth, row_tiles=row_tiles)
        tiles = triton.cdiv(columns, tiling.columns)
        if tiling.splits > 1 and tiles * row_tiles > _MAX_TILES:
            raise UnsupportedShape(f"a projection of {columns} columns for {rows} rows has too many tiles")
        splits = tiling.splits if isinstance(weight, Tensor) else used_splits(depth, tiling.splits)
        out, partials = x.new_empty(rows, columns, dtype=dtype), None
        if splits > 1:
            size = tiles * row_tiles * splits * padded * (tiling.columns + rank + 1)
            partials = x.new_empty(size, dtype=torch.float32)
        ends = [sum(p.sizes[: n + 1]) for n in range(len(p.sizes))] + [columns] * 2
        grid, memory = (tiles, splits, row_tiles), (p.bias, p.a, p.b, residual, out, partials, self.counters)
        constants = {
            "NORM": norm is not None, "BIAS": p.bias is not None, "RESIDUAL": residual is not None,
            "ADAPTER": p.a is not None, "SPLITS": splits, "ROWS": padded, "COLUMNS": tiling.columns, "RANK": rank,
            "PRECISE": is_precise(x),
        }  # fmt: skip
        if isinstance(weight, Tensor):
            self.launch(
                kernels.project, grid, x, norm, weight, *memory,
                rows, first_draft, columns, depth, p.rank, ends[0], ends[1], eps,
                DEPTH=depth_step(padded, x.itemsize), num_stages=4, **constants,
            )  # fmt: skip
            return out
        first, *rest = weight.sections
        second = rest[0] if rest else None
        self.launch(
            block_kernels.project_blocks, grid, x, norm, *first.planes, *(second.planes if second else [None] * 4),
            *memory, rows, first_draft, columns, first.outputs, depth, p.rank, ends[0], ends[1], eps,
            num_stages=block_stages(padded), **block_constants(first, "_0"), **block_constants(second, "_1"),
            **constants,
        )  # fmt: skip
        return out

    def gate_up(self, x: Tensor, norm: Tensor, projection: Projection, first_draft: int, eps: float) -> Tensor:
        p, (rows, depth), columns = projection, x.shape, projection.sizes[0]
        padded = padded_rows(rows)
        row_tiles = triton.cdiv(rows, padded)
        tiling = Tiling.of((columns,), depth, splittable=False, row_tiles=row_tiles)
        out = x.new_empty(rows, columns)
        width = tiling.columns if isinstance(p.weight, Tensor) else min(tiling.columns, GATE_UP_COLUMNS)
        grid, memory = (triton.cdiv(columns, width), row_tiles), (p.bias, p.a, p.b, out)
        constants = {
            "BIAS": p.bias is not None, "ADAPTER": p.a is not None, "ROWS": padded, "COLUMNS": width,
            "RANK": padded_rank(p.rank), "PRECISE": is_precise(x),
        }  # fmt: skip
        numbers = (rows, first_draft, columns, depth, p.rank, eps)
        if isinstance(p.weight, Tensor):
            self.launch(
                kernels.gate_up, grid, x, norm, p.weight, *memory, *numbers,
                DEPTH=depth_step(padded, x.itemsize), num_stages=3, **constants,
            )  # fmt: skip
            return out
        (matrix,) = p.weight.sections
        self.launch(
            block_kernels.gate_up_blocks, grid, x, norm, *matrix.planes, *memory, *numbers,
            num_stages=block_stages(padded), **block_constants(matrix), **constants,
        )  # fmt: skip
        return out

    def attend(
        self,
        fused: Tensor,
        positions: Tensor,
        rotary: RotaryEmbedding,
        head_norm: Tensor | None,
        eps: float,
        keys: Tensor,
        values: Tensor,
        past_length: Tensor,
        slots: Tensor,
        shape: StepShape,
    ) -> Tensor:
        rows, (_, kv_heads, capacity, head_dim) = len(fused), keys.shape
        heads = fused.shape[1] // head_dim - 2 * kv_heads
        queries, width, splits = shape.rows_each * heads // kv_heads, padded_rank(head_dim), -(-capacity // POSITIONS)
        tile = query_rows(queries)
        programs = kv_heads * triton.cdiv(queries, tile)
        if programs * shape.batch > _MAX_TILES:
            raise UnsupportedShape(f"attention has too many tiles for {shape.batch} times {shape.rows_each} rows")
        out = fused.new_empty(rows, heads * head_dim)
        partials = fused.new_empty(shape.batch * programs * splits * tile * (width + 2), dtype=torch.float32)
        self.launch(
            attention_kernel.attend, (programs, splits, shape.batch),
            fused, positions, rotary.cos, rotary.sin, rotary.query_scale, head_norm, keys, values, past_length, slots,
            shape.attention_mask.view(torch.uint8), out, partials, self.counters,
            shape.rows_each, shape.num_clean, capacity, splits, head_dim**-0.5, eps,
            HEADS=heads, KV_HEADS=kv_heads, HEAD_DIM=head_dim, HALF=padded_rank(head_dim // 2), WIDTH=width, ROWS=tile,
            KEYS=KEYS, SPLIT=POSITIONS, HEAD_NORM=head_norm is not None,
            QUERY_SCALE=rotary.query_scale is not None, PRECISE=is_precise(fused), num_stages=2, num_warps=8,
        )  # fmt: skip
        return out

    def predict(
        self, x: Tensor, norm: Tensor, weight: Weight, eps: float, excluded: int | None
    ) -> tuple[Tensor, Tensor]:
        (rows, depth), columns, padded = x.shape, len(weight), padded_rows(len(x))
        tiles, row_tiles = triton.cdiv(columns, HEAD_COLUMNS), triton.cdiv(rows, padded)
        best, weights = (x.new_empty(tiles, row_tiles * padded, dtype=torch.float32) for _ in range(2))
        token = x.new_empty(tiles, row_tiles * padded, dtype=torch.int32)
        numbers = (best, token, weights, rows, columns, depth, eps, -1 if excluded is None else excluded)
        constants = {"ROWS": padded, "COLUMNS": HEAD_COLUMNS, "PRECISE": is_precise(x)}
        if isinstance(weight, Tensor):
            self.launch(
                kernels.predict_tile, (tiles, row_tiles), x, norm, weight, *numbers,
                DEPTH=depth_step(padded, x.itemsize), num_stages=4, **constants,
            )  # fmt: skip
        else:
            (matrix,) = weight.sections
            self.launch(
                block_kernels.predict_tile_blocks, (tiles, row_tiles), x, norm, *matrix.planes, *numbers,
                num_stages=block_stages(padded), **block_constants(matrix), **constants,
            )  # fmt: skip
        tokens, confidence = x.new_empty(rows, dtype=torch.long), x.new_empty(rows, dtype=torch.float32)
        self.launch(
            kernels.predict_merge, (rows,),
            best, token, weights, tokens, confidence, tiles, row_tiles * padded, TILES=triton.next_power_of_2(tiles),
        )  # fmt: skip
        return tokens, confidence


def dependence(dependent: bool) -> dict[str, Any]:
    """What a kernel of a step is compiled and started with for programmatic dependent launch, or without it."""
    return {"DEPENDENT": True, "launch_pdl": True} if dependent else {"DEPENDENT": False}


def is_precise(x: Tensor) -> bool:
    """Whether products are computed in float32: see `kernels.py`."""
    return INTERPRETED or x.dtype == torch.float32
