"""Int8 weights kept on disk after the first start, because making them from a GGUF takes 15 s and reading them 1 s.

The file is a by-product: it is keyed by the checkpoint's path, size and time, written atomically, and a missing,
stale or damaged one is simply made again.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from model.linear import quantize_rows, weight_levels
from model.store import cache_folder, write_whole
from model.weights import Checkpoint

_log = logging.getLogger("rejoinder.model")

_FORMAT = "1"
"""Changes when the bytes of a prepared file would."""

_WORTH_KEEPING = 64 << 20
"""Bytes of weights below which a checkpoint is quantized in a moment and nothing is kept."""


class PreparedWeights:
    """The int8 rows of a checkpoint's matrices, from disk when they were made before.

    Args:
        checkpoint: what they are made from.
        folder: where prepared files are kept.
    """

    def __init__(self, checkpoint: Checkpoint, folder: Path | None = None) -> None:
        self._checkpoint = checkpoint
        self._path = (folder or cache_folder() / "prepared") / f"{_fingerprint(checkpoint.path)}.safetensors"
        self._made: dict[str, Tensor] = {}
        self._kept = self._path.exists()

    def rows(self, names: list[str]) -> tuple[Tensor, Tensor]:
        """`quantize_rows` of the tensors `names`, one below the other."""
        key = "+".join(names)
        if self._kept:
            try:
                with safe_open(self._path, "pt") as file:
                    return file.get_tensor(f"{key}.int8"), file.get_tensor(f"{key}.scale")
            except (SafetensorError, OSError) as error:
                _log.warning("%s is damaged (%s) and will be made again", self._path, error)
                self._kept = False
        if not self._made:
            _log.info("preparing int8 weights of %s; the next start will be quicker", self._checkpoint.path.name)
        pieces = [quantize_rows(self._checkpoint.tensor(name)) for name in names]
        rows, scale = torch.cat([piece[0] for piece in pieces]), torch.cat([piece[1] for piece in pieces])
        self._made[f"{key}.int8"], self._made[f"{key}.scale"] = rows, scale
        return rows, scale

    def save(self) -> None:
        """Keep what had to be made. A disk that is full or read-only costs the next start some time, no more."""
        if self._kept or sum(tensor.nbytes for tensor in self._made.values()) < _WORTH_KEEPING:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            for left in self._path.parent.glob("*.partial"):
                left.unlink(missing_ok=True)  # a killed run's, or one that is under way and will warn
            write_whole(self._path, lambda partial: save_file(self._made, partial))
        except (SafetensorError, OSError) as error:
            _log.warning("the prepared weights could not be kept (%s); the next start will make them again", error)
        self._made = {}


def _fingerprint(path: Path) -> str:
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    said = [
        f"{weight_levels()} levels",
        *(f"{file.resolve()} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files),
    ]
    return hashlib.sha256("\n".join([_FORMAT, *said]).encode()).hexdigest()[:24]
