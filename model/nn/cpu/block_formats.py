"""Block-quantized weight formats: what GGUF stores, and the layout that the CPU kernels read.

Every format stores a weight as an unsigned integer `q` and a scale, with a fixed offset, `scale × (q - offset)`, or a
minimum, `scale × q - minimum`. Repacking reorders the integers and copies the scales; it rounds nothing.

Packed layout: 16 output rows form a group. Along the inputs, a group is a sequence of records, so that a kernel reads
one stream. A record is two blocks of 32 inputs, or a K-quant superblock of 256. It begins with its scales. Then follow
its blocks, each as 64-byte lines. A vector is 16 rows × 4 inputs, a byte each, and a block has eight: four lines hold
the low four bits of two vectors each, and one or two more lines hold the remaining bits of all (eight lines in 8-bit
formats).

Source of the GGUF formats: ggml's `ggml-common.h` and `ggml-quants.c` (https://github.com/ggml-org/ggml).
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
Indices = NDArray[np.int64]

ROWS = 16
"""Output rows in a group: the lanes of a 512-bit vector of int32."""

BLOCK = 32
"""Inputs that share a scale (two scales in Q6_K); activations are quantized in blocks of the same size."""

LINE = 64

_U = np.arange(256, dtype=np.uint8)
"""Numbers whose operations with bytes stay bytes."""

Layout = Literal["pair", "pair_min", "super_min", "super"]
"""The scales of a record. `pair`: float16 for each of two blocks. `pair_min`: the same, and a float16 minimum for each.
`super_min`: 6-bit scales and minimums of eight blocks, and a float16 factor for each kind. `super`: int8 scales of
sixteen half blocks, and one float16 factor."""


@dataclass(frozen=True)
class BlockFormat:
    """One quantization format.

    Attributes:
        name: GGUF's name for it.
        bits: of a quantized weight.
        offset: subtracted from the quantized weight, in the layouts without minimums.
        stored_block: inputs in one block as GGUF stores it.
        stored_bytes: size of that block.
    """

    name: str
    bits: int
    layout: Layout
    offset: int
    stored_block: int
    stored_bytes: int

    @property
    def has_minimum(self) -> bool:
        """Whether a minimum is subtracted instead of a fixed offset."""
        return self.layout in ("pair_min", "super_min")

    @property
    def record_blocks(self) -> int:
        """Blocks of 32 inputs in a packed record."""
        return 2 if self.layout.startswith("pair") else 8

    @property
    def header_bytes(self) -> int:
        """Bytes of scales at the beginning of a record."""
        return {"pair": 1, "pair_min": 2, "super_min": 5, "super": 5}[self.layout] * LINE

    @property
    def block_bytes(self) -> int:
        """Bytes of quantized weights of one block in a record: 16 rows × 32 inputs."""
        return ROWS * BLOCK * self.bits // 8

    @property
    def record_bytes(self) -> int:
        """Bytes of a record."""
        return self.header_bytes + self.record_blocks * self.block_bytes


@dataclass(frozen=True)
class PackedMatrix:
    """A matrix [outputs, inputs] in the layout of this module.

    Attributes:
        packed: its bytes, at an address that is a multiple of 64.
    """

    form: BlockFormat
    outputs: int
    inputs: int
    packed: Bytes


FORMATS = {
    one.name: one
    for one in (
        BlockFormat("Q4_0", 4, "pair", 8, 32, 18),
        BlockFormat("Q4_1", 4, "pair_min", 0, 32, 20),
        BlockFormat("Q5_0", 5, "pair", 16, 32, 22),
        BlockFormat("Q5_1", 5, "pair_min", 0, 32, 24),
        BlockFormat("Q8_0", 8, "pair", 128, 32, 34),
        BlockFormat("Q4_K", 4, "super_min", 0, 256, 144),
        BlockFormat("Q5_K", 5, "super_min", 0, 256, 176),
        BlockFormat("Q6_K", 6, "super", 32, 256, 210),
    )
}


def aligned(size: int) -> Bytes:
    """`size` zero bytes at an address that is a multiple of 64."""
    room = np.zeros(size + LINE, np.uint8)
    start = -room.ctypes.data % LINE
    return room[start : start + size]


def packed_bytes(form: BlockFormat, outputs: int, inputs: int) -> int:
    """Size of a packed matrix [outputs, inputs]."""
    return -(-outputs // ROWS) * records(form, inputs) * form.record_bytes


def records(form: BlockFormat, inputs: int) -> int:
    """Records in a row of `inputs` weights; the last one may be filled up with zero blocks."""
    return -(-inputs // (BLOCK * form.record_blocks))


def pack(form: BlockFormat, stored: Bytes, inputs: int, out: Bytes) -> None:
    """Repack rows as GGUF stores them.

    Args:
        stored: [outputs, bytes of a row] uint8.
        inputs: weights in a row, a multiple of the format's stored block.
        out: `packed_bytes` long; overwritten.
    """
    groups, blocks = -(-len(stored) // ROWS), inputs // BLOCK
    padded = records(form, inputs) * form.record_blocks
    target = out.reshape(groups, padded // form.record_blocks, form.record_bytes)
    step = max(1, _CHUNK_WEIGHTS // (ROWS * inputs))

    def repack(first: int) -> None:
        rows = stored[first * ROWS : (first + step) * ROWS]
        if len(rows) % ROWS:
            rows = np.concatenate((rows, np.zeros((-len(rows) % ROWS, rows.shape[1]), np.uint8)))
        q, header = unpack(form, rows.reshape(len(rows), -1, form.stored_bytes))
        quads = np.zeros((len(rows) // ROWS, padded, 8, ROWS, 4), np.uint8)
        quads[:, :blocks] = q.reshape(-1, ROWS, blocks, 8, 4).transpose(0, 2, 3, 1, 4)
        part = target[first : first + step]
        part[:, :, : form.header_bytes] = _header(form, header, padded)
        part[:, :, form.header_bytes :] = _lines(form, quads).reshape(len(part), part.shape[1], -1)

    with ThreadPoolExecutor(os.cpu_count()) as threads:  # numpy releases the GIL in its loops
        list(threads.map(repack, range(0, groups, step)))


def dequantize(form: BlockFormat, stored: Bytes) -> NDArray[np.float32]:
    """Rows as GGUF stores them [rows, bytes of a row] → [rows, inputs] float32."""
    q, scales = unpack(form, stored.reshape(len(stored), -1, form.stored_bytes))
    values = q.reshape(len(q), -1, BLOCK // 2).astype(np.float32)

    def by_half_block(part: NDArray[Any]) -> NDArray[np.float32]:
        times = values.shape[1] // part.shape[1]
        repeated: NDArray[np.float32] = np.repeat(part.astype(np.float32), times, axis=1)
        return repeated[..., None]

    exact: NDArray[np.float32]
    if form.layout == "super_min":
        factor, factor_min, scale, minimum = map(by_half_block, scales)
        exact = values * (factor * scale) - factor_min * minimum
    elif form.layout == "pair_min":
        scale, minimum = map(by_half_block, scales)
        exact = values * scale - minimum
    elif form.layout == "super":
        shared, small = scales
        exact = (values - form.offset) * (by_half_block(shared) * by_half_block(small.view(np.int8)))
    else:
        exact = (values - form.offset) * by_half_block(scales[0])
    return exact.reshape(q.shape)


_CHUNK_WEIGHTS = 1 << 20
"""Weights repacked at a time by a thread, so that the intermediate arrays stay in the processor's cache."""


def _lines(form: BlockFormat, quads: Bytes) -> Bytes:
    """[groups, blocks, 8 vectors, 16 rows, 4 inputs] uint8 → [groups, blocks, block bytes]."""
    flat = quads.reshape(*quads.shape[:3], LINE)
    if form.bits == 8:
        return flat.reshape(*flat.shape[:2], -1)
    lines: list[Bytes] = [(flat[:, :, :4] & _U[15]) | ((flat[:, :, 4:] & _U[15]) << _U[4])]
    if form.bits == 5:
        fifth = np.zeros_like(flat[:, :, :1])
        for n in range(8):
            fifth[:, :, 0] |= (flat[:, :, n] >> _U[4]) << _U[n]
        lines.append(fifth)
    elif form.bits == 6:
        upper = np.zeros_like(flat[:, :, :2])
        for n in range(8):
            upper[:, :, n // 4] |= (flat[:, :, n] >> _U[4]) << _U[2 * (n % 4)]
        lines.append(upper)
    joined: Bytes = np.concatenate(lines, axis=2).reshape(*flat.shape[:2], -1)
    return joined


def _header(form: BlockFormat, scales: tuple[NDArray[np.generic], ...], padded: int) -> Bytes:
    """The scales of every record: [groups, records, header bytes]."""
    by_group = [part.reshape(-1, ROWS, part.shape[1]).transpose(0, 2, 1) for part in scales]  # [groups, n, 16 rows]
    if form.layout.startswith("pair"):
        full = [np.zeros((len(part), padded, ROWS), np.float16) for part in by_group]
        for whole, part in zip(full, by_group, strict=True):
            whole[:, : part.shape[1]] = part
        joined = np.stack(full, axis=2)  # [groups, blocks, scale and minimum, rows]
        return joined.reshape(len(joined), padded // 2, -1).view(np.uint8)
    groups, count = by_group[0].shape[:2]
    pieces = [np.ascontiguousarray(part).reshape(groups, count, -1).view(np.uint8) for part in by_group]
    if form.layout == "super":
        pieces.insert(1, np.zeros((groups, count, LINE // 2), np.uint8))
    return np.concatenate(pieces, axis=2)


def unpack(form: BlockFormat, blocks: Bytes) -> tuple[Bytes, tuple[NDArray[np.generic], ...]]:
    """[rows, blocks, bytes of a block] → quantized weights [rows, inputs] uint8, and each row's scales: float16, in
    superblocks float16 factors and small integers."""
    rows = len(blocks)

    def halves(start: int) -> NDArray[np.float16]:
        return np.ascontiguousarray(blocks[:, :, start : start + 2]).view(np.float16)[:, :, 0]

    def nibbles(start: int, count: int) -> Bytes:
        part = blocks[:, :, start : start + count]
        return np.concatenate((part & _U[15], part >> _U[4]), axis=2)

    if form.name == "Q8_0":
        return (blocks[:, :, 2:] ^ _U[128]).reshape(rows, -1), (halves(0),)
    if form.name in ("Q4_0", "Q4_1"):
        scales: tuple[NDArray[np.generic], ...] = (halves(0),) if form.name == "Q4_0" else (halves(0), -halves(2))
        return nibbles(2 * len(scales), 16).reshape(rows, -1), scales
    if form.name in ("Q5_0", "Q5_1"):
        scales = (halves(0),) if form.name == "Q5_0" else (halves(0), -halves(2))
        at = 2 * len(scales)
        fifth = np.unpackbits(blocks[:, :, at : at + 4], axis=2, bitorder="little")
        return (nibbles(at + 4, 16) | (fifth << _U[4])).reshape(rows, -1), scales
    if form.name == "Q6_K":
        return _unpack_q6_k(blocks), (halves(208), blocks[:, :, 192:208].reshape(rows, -1))
    packed = blocks[:, :, 4:16]
    low, high, mixed = packed[:, :, :4], packed[:, :, 4:8], packed[:, :, 8:]
    scale = np.concatenate((low & _U[63], (mixed & _U[15]) | ((low >> _U[6]) << _U[4])), axis=2)
    minimum = np.concatenate((high & _U[63], (mixed >> _U[4]) | ((high >> _U[6]) << _U[4])), axis=2)
    at = 48 if form.name == "Q5_K" else 16
    low_bits = blocks[:, :, at : at + 128].reshape(rows, -1, 4, 1, 32)
    q = np.concatenate((low_bits & _U[15], low_bits >> _U[4]), axis=3)  # [rows, superblocks, 4, 2, 32]
    if form.name == "Q5_K":
        fifth = blocks[:, :, None, None, 16:48] >> np.arange(8, dtype=np.uint8).reshape(4, 2, 1)
        q |= (fifth & _U[1]) << _U[4]
    return q.reshape(rows, -1), (halves(0), halves(2), scale.reshape(rows, -1), minimum.reshape(rows, -1))


def _unpack_q6_k(blocks: Bytes) -> Bytes:
    """Quantized weights of Q6_K superblocks: two halves of 128, each four runs of 32."""
    rows = len(blocks)
    low = blocks[:, :, :128].reshape(rows, -1, 2, 2, 32)
    high = blocks[:, :, 128:192].reshape(rows, -1, 2, 1, 32)
    q = np.concatenate((low & _U[15], low >> _U[4]), axis=3)  # [rows, superblocks, 2, 4, 32]
    upper: Bytes = ((high >> _U[:8:2, None]) & _U[3]) << _U[4]
    return (q | upper).reshape(rows, -1)
