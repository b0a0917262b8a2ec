"""Block-quantized weights in the layout that the GPU's kernels read (`block_kernels.py`), at the bits that a GGUF file
stores. Repacking reorders bits and rounds nothing.

Two blocks of 32 inputs are a pair. A byte of `low` holds the low four bits of one weight of each block, so that a tile
of 32 × columns bytes expands to two tiles of weights without shuffling. `high` holds the remaining bits, of eight
blocks (one bit each) or of four (two bits). Bytes of a column are contiguous, then come those of the next column, so a
tile of a pair is one contiguous piece of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.nn.cpu.block_formats import BLOCK, BlockFormat, Bytes, unpack

PAIR = 2 * BLOCK
"""Inputs that the kernels' loops take at a time."""

SUPER = 256
"""Inputs of a superblock. The depth is divided at its borders."""

_EXPANDED_AT_A_TIME = 1 << 24
"""Weights that plain PyTorch expands at a time, which bounds its temporary memory."""


@dataclass(frozen=True)
class BlockMatrix:
    """Quantized weights [outputs, inputs].

    Attributes:
        low: uint8 [pairs, outputs, 32], or in 8-bit formats [2 × pairs, outputs, 32].
        high: uint8 [planes, outputs, 32]; None in formats of 4 and 8 bits.
        words: int32 [superblocks, 3 or 4, outputs], the small scales of K-quants; None in other formats. Three words
            hold eight scales and minimums of 6 bits: two words their low four bits, the third the other two. Four hold
            sixteen scales of 8 bits.
        factors: float16 [blocks or superblocks, 1 or 2, outputs]: the scale, and the minimum if the format has one.
    """

    form: BlockFormat
    outputs: int
    inputs: int
    low: Tensor
    high: Tensor | None
    words: Tensor | None
    factors: Tensor

    @staticmethod
    def of(form: BlockFormat, stored: Bytes, inputs: int, device: torch.device) -> BlockMatrix:
        """Repack rows as GGUF stores them: [outputs, bytes of a row] uint8."""
        q, scales = unpack(form, stored.reshape(len(stored), -1, form.stored_bytes))
        outputs = len(stored)
        pairs = _padded(q, PAIR).reshape(outputs, -1, 2, BLOCK)
        low = pairs.reshape(outputs, -1, BLOCK) if form.bits == 8 else (pairs[:, :, 0] & 15) | (pairs[:, :, 1] << 4)
        planes = [low.transpose(1, 0, 2)]
        if form.bits in (5, 6):
            upper, shared = form.bits - 4, 8 // (form.bits - 4)
            parts = _padded(q >> np.uint8(4), shared * BLOCK).reshape(outputs, -1, shared, BLOCK)
            shifts = np.arange(shared, dtype=np.uint8)[:, None] * np.uint8(upper)
            planes.append(np.bitwise_or.reduce(parts << shifts, axis=2).transpose(1, 0, 2))
        halves = [part for part in scales if part.dtype == np.float16]
        if form.layout.startswith("pair"):  # so that a pair has two scales
            halves = [np.pad(part, ((0, 0), (0, part.shape[1] % 2))) for part in halves]
        factors = np.stack(halves, 2).transpose(1, 2, 0)
        words = _words(form, [part.view(np.uint8) for part in scales if part.dtype != np.float16], outputs)

        def moved(array: NDArray[np.generic]) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        high = moved(planes[1]) if len(planes) > 1 else None
        return BlockMatrix(
            form, outputs, inputs, moved(planes[0]), high, None if words is None else moved(words), moved(factors)
        )

    @property
    def planes(self) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
        """What a kernel reads."""
        return self.low, self.high, self.words, self.factors

    @property
    def nbytes(self) -> int:
        """Bytes of the planes."""
        return sum(plane.nbytes for plane in self.planes if plane is not None)

    def expanded(self, first: int, end: int) -> Tensor:
        """Rows `first` to `end` as float32 [rows, inputs], in plain PyTorch. They equal what gguf-py dequantizes."""
        rows, form = end - first, self.form
        low = self.low[:, first:end]
        parts = low if form.bits == 8 else torch.stack((low & 15, low >> 4), 2)
        q = parts.transpose(0, 1).reshape(rows, -1)[:, : self.inputs]
        if self.high is not None:
            bits = form.bits - 4
            shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=low.device)[:, None]
            upper = (self.high[:, first:end, None] >> shifts) & (1 << bits) - 1
            q = q | upper.transpose(0, 1).reshape(rows, -1)[:, : self.inputs] << 4
        factors = self.factors[:, :, first:end].float().permute(1, 2, 0)[..., : -(-self.inputs // form.stored_block)]
        small = _small_scales(self, first, end)

        def spread(part: Tensor) -> Tensor:
            return part.repeat_interleave(self.inputs // part.shape[1], 1)

        scale, *minimum = factors
        if small:
            scale = (scale.repeat_interleave(small[0].shape[1] // scale.shape[1], 1)) * small[0]
            minimum = [part.repeat_interleave(8, 1) * own for part, own in zip(minimum, small[1:], strict=True)]
        values = (q.float() - form.offset) * spread(scale)
        return values - spread(minimum[0]) if minimum else values


def _padded(q: Bytes, multiple: int) -> Bytes:
    """[outputs, inputs] filled up with zeros to whole multiples."""
    return np.pad(q, ((0, 0), (0, -q.shape[1] % multiple)))


def _words(form: BlockFormat, small: Sequence[Bytes], outputs: int) -> NDArray[np.int32] | None:
    """The small scales of superblocks as int32 [superblocks, words, outputs]."""
    if not small:
        return None
    if form.layout == "super":
        packed = np.ascontiguousarray(small[0]).reshape(outputs, -1, 16)
    else:
        scale, minimum = (part.reshape(outputs, -1, 8) for part in small)
        upper = (scale >> 4) | (minimum >> 4 << 2)
        packed = np.concatenate(((scale & 15) | (minimum << 4), upper[..., ::2] | (upper[..., 1::2] << 4)), 2)
    return np.ascontiguousarray(packed).view(np.int32).transpose(1, 2, 0)


def _small_scales(matrix: BlockMatrix, first: int, end: int) -> list[Tensor]:
    """The small scales, and in formats that have them the minimums, [rows, count] float32 each."""
    if matrix.words is None:
        return []
    words = matrix.words[:, :, first:end].permute(2, 0, 1).contiguous()
    rows, supers, _ = words.shape
    if matrix.form.layout == "super":
        return [words.view(torch.int8).reshape(rows, -1).float()]
    packed = words.view(torch.uint8).reshape(rows, supers, 12)
    low, upper = packed[..., :8], torch.stack((packed[..., 8:] & 15, packed[..., 8:] >> 4), 3).reshape(rows, supers, 8)
    scale, minimum = (low & 15) | ((upper & 3) << 4), (low >> 4) | ((upper >> 2) << 4)
    return [scale.reshape(rows, -1).float(), minimum.reshape(rows, -1).float()]


@dataclass(frozen=True)
class BlockWeight:
    """The weights of one or several projections of the same input, which a kernel reads in one launch.

    Attributes:
        sections: matrices below each other, at most `MAX_SECTIONS`, of different formats.
        dtype: of the activations, and of the expanded weights.
        expand: writes an expanded matrix to memory; plain PyTorch without it.
    """

    sections: tuple[BlockMatrix, ...]
    dtype: torch.dtype
    expand: Callable[[BlockMatrix, Tensor], None] | None = None

    def __len__(self) -> int:
        return sum(one.outputs for one in self.sections)

    @property
    def nbytes(self) -> int:
        """Bytes that a multiplication reads."""
        return sum(one.nbytes for one in self.sections)

    @property
    def tensors(self) -> list[Tensor]:
        """What a multiplication reads."""
        return [plane for one in self.sections for plane in one.planes if plane is not None]

    def rows(self, numbers: Sequence[int]) -> Tensor:
        """Some rows of the first section, expanded."""
        return torch.cat([self.sections[0].expanded(row, row + 1) for row in numbers]).to(self.dtype)

    def expanded(self) -> Tensor:
        """The weights as a matrix [outputs, inputs]: what the kernels compute with."""
        inputs = self.sections[0].inputs
        out = torch.empty(len(self), inputs, dtype=self.dtype, device=self.sections[0].low.device)
        step, done = max(1, _EXPANDED_AT_A_TIME // inputs), 0
        for one in self.sections:
            if self.expand is not None:
                self.expand(one, out[done : done + one.outputs])
            else:
                for first in range(0, one.outputs, step):
                    end = min(first + step, one.outputs)
                    out[done + first : done + end] = one.expanded(first, end)
            done += one.outputs
        return out


MAX_SECTIONS = 2
"""Formats in one launch: Q4_K_M files store queries and keys in one format, and some of the values in another."""
