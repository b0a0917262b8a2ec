"""Linear layers and embeddings with block-quantized weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.nn.cpu.block_formats import BLOCK, ROWS, BlockFormat, Bytes, PackedMatrix, aligned, dequantize, records
from model.nn.cpu.codegen import SEGMENT, kernel_name, kernel_text
from model.nn.cpu.jobs import RowJob, call_table
from model.nn.cpu.matrix_registers import MATRIX_ROWS
from model.nn.cpu.row_codegen import QUANTIZE, quantize_kernel
from model.nn.cpu.team import Team, shared_team
from model.nn.cpu.tile import SUMS
from model.nn.linear import Linear

_MIN_CHUNK_BYTES, _MAX_CHUNK_BYTES = 64 << 10, 512 << 10
"""Bytes of weights in a chunk: at least about 5 µs of work for a core, which is long compared with claiming it; at most
40 µs, which the other cores may have to wait for at the end."""

_CHUNKS_PER_THREAD = 6

_TAIL = 8
"""The last chunks, one of the usual size for each thread, are divided into this many smaller ones, so that the threads
finish at nearly the same time."""


class QuantizedActivations:
    """Activations as int8, quantized in blocks of 32 with a scale each. All rows of a block are next to each other, as
    a kernel reads them.

    Attributes:
        levels: [blocks, rows, 32] int8; the number of blocks is even.
        scale: [blocks, rows] float32.
        minimum: [blocks, rows] float32, what the minimums of weights are multiplied by: minus the sum of the block's
            activations.
        sums: [blocks, rows, SUMS] int32: minus the sum of the block's levels, and of each half.
    """

    def __init__(self, rows: int, inputs: int) -> None:
        blocks = -(-inputs // (2 * BLOCK)) * 2
        # Matrix registers read beyond the last row, and are slower if cache lines split the rows.
        room = aligned((blocks * rows + MATRIX_ROWS) * BLOCK).view(np.int8)
        self.levels: NDArray[np.int8] = room[: blocks * rows * BLOCK].reshape(blocks, rows, BLOCK)
        self.scale: NDArray[np.float32] = np.zeros((blocks, rows), np.float32)
        self.minimum: NDArray[np.float32] = np.zeros((blocks, rows), np.float32)
        self.sums: NDArray[np.int32] = np.zeros((blocks, rows, SUMS), np.int32)

    @property
    def fields(self) -> dict[str, NDArray[Any] | int]:
        """What kernels that quantize take."""
        names = ("levels", "scale", "minimum", "sums")
        return {**dict(zip(names, self.arrays, strict=True)), "rows": self.scale.shape[1]}

    @property
    def arrays(self) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.float32], NDArray[np.int32]]:
        """All four, as the kernels take them."""
        return self.levels, self.scale, self.minimum, self.sums


class Operands:
    """The activations and the result of a multiplication, as the kernels take them. Built once for several layers.

    Args:
        x: the activations.
        out: [rows, outputs] float32.
    """

    def __init__(self, x: QuantizedActivations, out: NDArray[np.float32]) -> None:
        self.x, self.out = x, out
        self._call = np.array([*(array.ctypes.data for array in (*x.arrays, out)), *out.shape])
        self.address = self._call.ctypes.data


class BlockLinear:
    """y = x Wᵀ + b for matrices of the same input next to each other.

    Args:
        matrices: at least one.
        bias: [out_features] float32, or None; `multiply` leaves it to the caller.
        team: whose threads multiply; the process's own when not given.

    Attributes:
        out_features: columns of the result.
        nbytes: bytes of weights that a multiplication reads.
        bias_row: the bias as kernels take it, zeros without one.
    """

    def __init__(self, matrices: Sequence[PackedMatrix], bias: Tensor | None = None, team: Team | None = None) -> None:
        self._matrices, self.team, self.bias = tuple(matrices), team or shared_team(), bias
        self._in_features = matrices[0].inputs
        self.out_features = sum(one.outputs for one in matrices)
        self.nbytes = sum(one.packed.nbytes for one in matrices)
        self.bias_row: NDArray[np.float32] = np.zeros(self.out_features, np.float32) if bias is None else bias.numpy()
        self._segments, self._chunks = _segments(self._matrices, self.team)
        self._address = self._segments.ctypes.data

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, in] float32 → [rows, out] float32."""
        quantized = QuantizedActivations(len(x), self._in_features)
        call = call_table(QUANTIZE, 1, x=x.contiguous().numpy(), **quantized.fields)
        job = RowJob(quantize_kernel(self.team, self._in_features), len(x), self._in_features, self.team.threads)
        self.team.run(job.segments.ctypes.data, call.ctypes.data, job.chunks)
        out = torch.empty(len(x), self.out_features)
        self.multiply(Operands(quantized, out.numpy()))
        return out if self.bias is None else out.add_(self.bias)

    def multiply(self, operands: Operands) -> None:
        """Multiply the activations into the result, without the bias."""
        self.team.run(*self.job(operands))

    def job(self, operands: Operands) -> tuple[int, int, int]:
        """The job of `multiply`: the arguments of `Team.run`."""
        return self._address, operands.address, self._chunks


def block_linear(linear: Linear) -> BlockLinear:
    """A layer of a decoder whose weights are block-quantized."""
    assert isinstance(linear, BlockLinear)
    return linear


def _segments(matrices: Sequence[PackedMatrix], team: Team) -> tuple[NDArray[np.int64], int]:
    """How the team divides the matrices: rows of the fields of SEGMENT, and the number of chunks."""
    rows, first = [], 0
    for one in matrices:
        count = records(one.form, one.inputs)
        group_bytes = count * one.form.record_bytes
        chunk_bytes = one.packed.nbytes // (_CHUNKS_PER_THREAD * team.threads)
        size = max(1, min(max(chunk_bytes, _MIN_CHUNK_BYTES), _MAX_CHUNK_BYTES) // group_bytes)
        groups = -(-one.outputs // ROWS)
        tail = min(groups, size * team.threads) if one is matrices[-1] else 0
        kernel = team.kernel(kernel_name(one.form), partial(kernel_text, one.form))
        for begin, end, each in ((0, groups - tail, size), (groups - tail, groups, max(1, size // _TAIL))):
            if begin < end:
                weights, outputs = one.packed.ctypes.data + begin * group_bytes, one.outputs - begin * ROWS
                rows.append((kernel, weights, count, outputs, first + begin * ROWS, end - begin, each))
        first += one.outputs
    chunks = np.cumsum([0, *(-(-groups // each) for *_, groups, each in rows)])
    segments = np.zeros((len(rows) + 1, len(SEGMENT)), np.int64)
    segments[:-1, :-1], segments[:-1, -1] = rows, chunks[:-1]
    segments[-1, -1] = np.iinfo(np.int64).max
    return segments, int(chunks[-1])


class BlockEmbedding:
    """Token embeddings, dequantized when they are looked up.

    Args:
        form: how the table is stored.
        blocks: its rows as GGUF stores them.
    """

    def __init__(self, form: BlockFormat, blocks: Bytes) -> None:
        self._form, self._blocks = form, blocks

    def __call__(self, ids: Tensor) -> Tensor:
        """[rows] int64 → [rows, hidden] float32."""
        return torch.from_numpy(dequantize(self._form, self._blocks[ids.numpy()]))
