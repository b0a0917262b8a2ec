"""Adapters, draft heads, classifiers and prefixes that are bundled with this package, found by the checksum of
the weights they were made for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from safetensors import SafetensorError, safe_open

from model.checkpoint.bound_file import stated_base
from model.checkpoint.checkpoint import DecoderConfig, weight_files
from model.checkpoint.gguf import BadModelFile
from model.checkpoint.tuned import tuned_from
from model.hub.store import verified_checksum

BUNDLED_ADAPTERS = Path(__file__).parent / "adapters"
BUNDLED_DRAFT_HEADS = Path(__file__).parent / "draft_heads"
BUNDLED_CLASSIFIERS = Path(__file__).parent / "classifiers"
BUNDLED_REQUEST_CLASSIFIERS = BUNDLED_CLASSIFIERS / "requests"
BUNDLED_CALL_GATES = BUNDLED_CLASSIFIERS / "calls"
BUNDLED_PROGRAM_PREFIXES = Path(__file__).parent / "program_prefixes"

_CHUNK = 8 << 20

T = TypeVar("T")


def weights_size(path: Path) -> int:
    """Bytes of a checkpoint's weights."""
    return sum(file.stat().st_size for file in weight_files(path))


def weights_checksum(path: Path) -> str:
    """sha256 of a GGUF file with all its parts, or of a folder's safetensors files in order of their names.

    Half a gigabyte takes 0.3 s to read, and 1.2 s from a cold disk. So a file that the store has verified is not read
    again, and no other file is read twice.
    """
    files = weight_files(path)
    verified = verified_checksum(files[0]) if len(files) == 1 else None
    return verified or _checksum(tuple((file, file.stat().st_mtime_ns) for file in files))


def weights_identity(path: Path) -> str:
    """Names a checkpoint's weights without reading them: their checksum if the store has verified it; otherwise their
    path, size and modification time."""
    files = weight_files(path)
    verified = verified_checksum(files[0]) if len(files) == 1 else None
    return verified or " ".join(f"{file.resolve()} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files)


@lru_cache(maxsize=8)
def _checksum(files: tuple[tuple[Path, int], ...]) -> str:
    """sha256 of some files. Their modification times (ns) are part of the cache key."""
    digest = hashlib.sha256()
    for file, _ in files:
        with file.open("rb") as opened:
            while chunk := opened.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


def is_made_for(path: Path, sha256: str | None, size: int) -> bool:
    """Whether a model has the weights of this checksum and size, or was tuned from them. The weights are read for their
    checksum only if the size matches."""
    if sha256 is not None and sha256 == tuned_from(path):
        return True
    return size == weights_size(path) and sha256 == weights_checksum(path)


def required_checksum(path: Path, file: Path) -> str:
    """The checksum that a file must state to be used with a model: that of its weights, or of those that it was tuned
    from if the file was made for them."""
    base = tuned_from(path)
    return base if base is not None and stated_base(file) == base else weights_checksum(path)


Load = Callable[[Path, DecoderConfig, str], T]
"""Opens a file for a model of this shape, which must have been made for the weights with this checksum."""


def bundled(path: Path, config: DecoderConfig, folder: Path, load: Load[T]) -> T | None:
    """What lies in a folder for these weights, or None."""
    file = bundled_file(path, folder)
    return None if file is None else load(file, config, required_checksum(path, file))


def bundled_file(path: Path, folder: Path) -> Path | None:
    """The file in a folder that was made for these weights, or None."""
    for candidate in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(candidate, "pt") as file:
                metadata = file.metadata() or {}
        except (SafetensorError, OSError) as error:
            raise BadModelFile(f"{candidate} cannot be read ({error}): install rejoinder again") from None
        if is_made_for(path, metadata.get("base_sha256"), int(metadata.get("base_bytes") or -1)):
            return candidate
    return None
