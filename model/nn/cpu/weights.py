"""Packed weights of a checkpoint: repacked at the first start and cached on disk.

Matrices that a GGUF file stores in blocks keep their quantized values and scales. Others (float16, bfloat16 or float32)
are quantized to Q8_0. The cached file is keyed by the checkpoint's path, size and modification time, and written
atomically. If it is missing, stale or damaged, the weights are repacked.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from model.checkpoint.checkpoint import Checkpoint
from model.hub.store import cache_folder, write_atomically
from model.nn.cpu.block_formats import BLOCK, FORMATS, LINE, Bytes, pack, packed_bytes
from model.nn.cpu.linear import BlockEmbedding, BlockLinear, PackedMatrix
from model.nn.cpu.team import aligned

_log = logging.getLogger("rejoinder.model")

_FORMAT = "1"
"""Version of the file's content."""

_OBSOLETE_FOLDER = "prepared"
"""Where earlier versions cached int8 weights, some GB that nothing else would delete."""

_SLAB_BYTES = 32 << 20
"""Matrices share pieces of memory of this size. numpy asks for large pages from 4 MB on, and most matrices of a small
model are smaller: with ordinary pages they are read a tenth more slowly."""

_MIN_CACHED_BYTES = 64 << 20
"""Smaller checkpoints are repacked in a moment and not cached."""


class PackedWeights:
    """The packed matrices of a checkpoint, read from disk if they were packed before.

    Args:
        checkpoint: the weights to pack.
        folder: folder of the cached files.
    """

    def __init__(self, checkpoint: Checkpoint, folder: Path | None = None) -> None:
        self._checkpoint = checkpoint
        self._path = (folder or cache_folder() / "packed") / f"{_fingerprint(checkpoint.path)}.safetensors"
        self._slab: Bytes = aligned(0)
        self._packed: dict[str, Tensor] = {}
        self._described: dict[str, str] = {}
        self._cached = self._path.exists()

    def linear(self, names: Sequence[str], bias: Tensor | None) -> BlockLinear:
        """The matrices `names`, which have the same input, as one layer.

        Raises:
            BadModelFile: the checkpoint lacks one.
        """
        return BlockLinear([self._matrix(name) for name in names], bias)

    def _matrix(self, name: str) -> PackedMatrix:
        if self._cached and (cached := self._read(name)) is not None:
            return cached
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
        self._packed[name], self._described[name] = torch.from_numpy(packed), f"{form.name} {outputs} {inputs}"
        return PackedMatrix(form, outputs, inputs, packed)

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

    def _read(self, name: str) -> PackedMatrix | None:
        """A cached matrix; None if the file is damaged."""
        try:
            with safe_open(self._path, "pt") as file:
                kind, outputs, inputs = (file.metadata() or {})[name].split()
                stored: Bytes = file.get_tensor(name).numpy()
            form, shape = FORMATS[kind], (int(outputs), int(inputs))
            if stored.nbytes != packed_bytes(form, *shape):
                raise ValueError(f"{name} has {stored.nbytes} bytes")
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            _log.warning("%s is damaged (%s); repacking the weights", self._path, error)
            self._cached = False
            return None
        packed = self._room(stored.nbytes)
        packed[:] = stored
        return PackedMatrix(form, *shape, packed)

    def save(self) -> None:
        """Write what was packed. On a full or read-only disk this only logs a warning; the next start is slow."""
        if self._cached or sum(tensor.nbytes for tensor in self._packed.values()) < _MIN_CACHED_BYTES:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            for partial_file in self._path.parent.glob("*.partial"):
                partial_file.unlink(missing_ok=True)  # of a killed run, or of a running one, which will log a warning
            write_atomically(self._path, lambda partial: save_file(self._packed, partial, self._described))
            shutil.rmtree(cache_folder() / _OBSOLETE_FOLDER, ignore_errors=True)
        except (SafetensorError, OSError) as error:
            _log.warning("the packed weights could not be cached (%s); the next start will repack them", error)
        self._packed = {}


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
    padded = np.zeros((outputs, blocks * BLOCK), np.float32)
    padded[:, :inputs] = weight
    groups = padded.reshape(outputs, blocks, BLOCK)
    scale = (np.abs(groups).max(axis=2) / 127).astype(np.float16)
    by = np.divide(1, scale.astype(np.float32), where=scale != 0, out=np.zeros(scale.shape, np.float32))
    levels = np.rint(groups * by[..., None]).clip(-127, 127).astype(np.int8)
    return np.concatenate((scale[..., None].view(np.uint8), levels.view(np.uint8)), axis=2).reshape(outputs, -1)


def _fingerprint(path: Path) -> str:
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    key = [f"{file.resolve()} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files]
    return hashlib.sha256("\n".join([_FORMAT, *key]).encode()).hexdigest()[:24]
