"""Arguments of the kernels for weights in blocks, and the launch of the one that expands them. Importing this module
needs Triton."""

from __future__ import annotations

from typing import Any

import triton
from torch import Tensor

from model.nn.gpu import block_kernels
from model.nn.gpu.block_matrix import PAIR, SUPER, BlockMatrix

INTERPRETED = not isinstance(block_kernels.expand_blocks, triton.JITFunction)
"""Whether the kernels run in Triton's interpreter."""

_EXPANDED_COLUMNS = 32
"""Columns of a tile of `expand`."""


GATE_UP_COLUMNS = 32
"""Columns of a tile of gate and up at most: with 64 of each, registers do not suffice."""


def block_constants(matrix: BlockMatrix | None, suffix: str = "") -> dict[str, Any]:
    """A format as a kernel's compile-time constants; 0 bits for no matrix."""
    layout, bits, offset = ("", 0, 0) if matrix is None else (matrix.form.layout, matrix.form.bits, matrix.form.offset)
    return {f"LAYOUT{suffix}": layout, f"BITS{suffix}": bits, f"OFFSET{suffix}": offset}


def used_splits(depth: int, splits: int) -> int:
    """Parts of the depth of which none is empty: they consist of whole superblocks."""
    supers = triton.cdiv(depth, SUPER)
    return int(triton.cdiv(supers, triton.cdiv(supers, splits)))


def block_stages(rows: int) -> int:
    """Pairs that a program loads ahead: what fits 99 KiB of shared memory with 8-bit weights."""
    return 4 if rows <= 32 else 3


def expand(matrix: BlockMatrix, out: Tensor) -> None:
    """Expand weights to `out` [outputs, inputs], contiguous."""
    grid = (triton.cdiv(matrix.outputs, _EXPANDED_COLUMNS), triton.cdiv(matrix.inputs, PAIR))
    block_kernels.expand_blocks[grid](
        *matrix.planes, out, matrix.outputs, matrix.inputs, COLUMNS=_EXPANDED_COLUMNS, PRECISE=INTERPRETED,
        **block_constants(matrix),
    )  # fmt: skip
