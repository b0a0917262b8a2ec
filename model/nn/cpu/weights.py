"""Packed weights of a checkpoint: repacked at the first start and cached on disk (`packed_file.py`).

Matrices that a GGUF file stores in blocks keep their quantized values and scales. Others (float16, bfloat16 or float32)
are quantized to Q8_0. The cached file is written atomically. If it is missing, stale or damaged, the weights are
repacked.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from model.checkpoint.checkpoint import Checkpoint
from model.nn.cpu.block_formats import BLOCK, FORMATS, LINE, Bytes, PackedMatrix, aligned, pack, packed_bytes
from model.nn.cpu.linear import BlockEmbedding, BlockLinear
from model.nn.cpu.packed_file import PackedFile, packed_path, write_packed

_log = logging.getLogger("rejoinder.model")

_SLAB_BYTES = 32 << 20
"""Matrices share pieces of memory of this size. numpy asks for large pages from 4 MB on, and most matrices of a small
model are smaller: with ordinary pages they are read a tenth more slowly."""

_CHUNK_WEIGHTS = 1 << 16
"""Quantized at a time, which fits the processor's caches."""

_MIN_CACHED_BYTES = 64 << 20
"""Smaller checkpoints are repacked in a moment and not cached."""


class PackedWeights:
    """The packed matrices of a checkpoint, read from disk if they were packed before."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._path = packed_path(checkpoint.path)
        self._slab: Bytes = aligned(0)
        self._packed: dict[str, PackedMatrix] = {}
        self._file: PackedFile | None = None
        try:
            self._file = PackedFile(self._path)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            self._give_up(error)

    def linear(self, names: Sequence[str], bias: Tensor | None) -> BlockLinear:
        """The matrices `names`, which have the same input, as one layer.

        Raises:
            BadModelFile: the checkpoint lacks one.
        """
        return BlockLinear([self._matrix(name) for name in names], bias)

    def _matrix(self, name: str) -> PackedMatrix:
        if self._file is not None:
            try:
                return self._packed.setdefault(name, self._file.matrix(name))
            except ValueError as error:
                self._give_up(error)
        if not self._packed:
            _log.info("repacking the weights of %s; the next start will be faster", self._checkpoint.path.name)
        stored = self._checkpoint.blocks(name)
        if stored is None or stored.format not in FORMATS:
            form, weight = FORMATS["Q8_0"], self._checkpoint.tensor(name).numpy()
            outputs, inputs, blocks = *weight.shape, quantize_q8_0(weight)
        else:
            form, (outputs, inputs), blocks = FORMATS[stored.format], stored.shape, stored.blocks
        packed = self._room(packed_bytes(form, outputs, inputs))
        pack(form, blocks, -(-inputs // BLOCK) * BLOCK, packed)
        if stored is not None:
            stored.release()  # otherwise the process holds the whole file next to the packed weights
        self._packed[name] = PackedMatrix(form, outputs, inputs, packed)
        return self._packed[name]

    def _give_up(self, error: Exception) -> None:
        _log.warning("%s is damaged (%s); repacking the weights", self._path, error)
        self._file = None

    def _room(self, size: int) -> Bytes:
        """Zero bytes for a matrix, at an address that is a multiple of 64."""
        end = -(-size // LINE) * LINE
        if len(self._slab) < end:
            self._slab = aligned(max(end, _SLAB_BYTES))
        room, self._slab = self._slab[:size], self._slab[end:]
        return room

    def embedding(self, name: str) -> BlockEmbedding:
        """The embedding table `name`, whose rows are looked up one by one. A GGUF file's table stays in the file.

        Raises:
            BadModelFile: the checkpoint lacks it.
        """
        stored = self._checkpoint.blocks(name)
        if stored is not None and stored.format in FORMATS:
            return BlockEmbedding(FORMATS[stored.format], stored.blocks)
        return BlockEmbedding(FORMATS["Q8_0"], quantize_q8_0(self._checkpoint.tensor(name).numpy()))

    def save(self) -> None:
        """Write what was packed. On a full or read-only disk this only logs a warning; the next start is slow."""
        if self._file is not None or sum(one.packed.nbytes for one in self._packed.values()) < _MIN_CACHED_BYTES:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            for partial_file in self._path.parent.glob("*.partial"):
                partial_file.unlink(missing_ok=True)  # of a killed run, or of a running one, which will log a warning
            write_packed(self._path, self._packed)
        except OSError as error:
            _log.warning("the packed weights could not be cached (%s); the next start will repack them", error)


def quantized_linear(weight: Tensor) -> BlockLinear:
    """A linear layer [outputs, inputs] of float weights, quantized to Q8_0."""
    form, (outputs, inputs) = FORMATS["Q8_0"], weight.shape
    packed = aligned(packed_bytes(form, outputs, inputs))
    pack(form, quantize_q8_0(weight.float().numpy()), -(-inputs // BLOCK) * BLOCK, packed)
    return BlockLinear([PackedMatrix(form, outputs, inputs, packed)])


def quantize_q8_0(weight: NDArray[np.float32]) -> Bytes:
    """Quantize [outputs, inputs] to Q8_0 blocks as GGUF stores them; inputs are filled up with zeros to whole
    blocks."""
    outputs, inputs = weight.shape
    blocks = -(-inputs // BLOCK)
    stored: Bytes = np.empty((outputs, blocks, BLOCK + 2), np.uint8)
    step = max(1, _CHUNK_WEIGHTS // inputs)
    padded = np.zeros((step, blocks * BLOCK), np.float32)
    for start in range(0, outputs, step):
        rows = weight[start : start + step]
        padded[: len(rows), :inputs] = rows
        groups = padded[: len(rows)].reshape(len(rows), blocks, BLOCK)
        scale = (np.abs(groups).max(axis=2) / 127).astype(np.float16)
        by = np.divide(1, scale.astype(np.float32), where=scale != 0, out=np.zeros(scale.shape, np.float32))
        levels = np.rint(groups * by[..., None]).clip(-127, 127).astype(np.int8)
        stored[start : start + step, :, :2] = scale[..., None].view(np.uint8)
        stored[start : start + step, :, 2:] = levels.view(np.uint8)
    return stored.reshape(outputs, -1)
