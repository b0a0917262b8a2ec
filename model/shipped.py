"""What goes with which weights: adapters and ending classifiers that are shipped inside this package, found by
checksum.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from safetensors import SafetensorError, safe_open

from model.adapter import Adapter, load_adapter
from model.ending import Ending, load_ending
from model.gguf_file import BadModelFile
from model.store import noted_checksum
from model.weights import DecoderConfig

SHIPPED = Path(__file__).parent / "adapters"
SHIPPED_ENDINGS = Path(__file__).parent / "endings"

_CHUNK = 8 << 20


def weights_size(path: Path) -> int:
    """Bytes of a checkpoint's weights."""
    return sum(file.stat().st_size for file in _files(path))


def weights_checksum(path: Path) -> str:
    """sha256 of a GGUF file, or of a folder's safetensors files in order of their names.

    Half a gigabyte takes 0.3 s to read and 1.2 s from a cold disk: a file that the store has checked is not read
    again, and no other is read twice.
    """
    files = _files(path)
    noted = noted_checksum(files[0]) if len(files) == 1 else None
    return noted or _checksum(tuple((file, file.stat().st_mtime_ns) for file in files))


@lru_cache(maxsize=8)
def _checksum(files: tuple[tuple[Path, int], ...]) -> str:
    """Of files as they were at some time (ns)."""
    digest = hashlib.sha256()
    for file, _ in files:
        with file.open("rb") as opened:
            while chunk := opened.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


def shipped_adapter(path: Path, config: DecoderConfig, folder: Path = SHIPPED) -> Adapter | None:
    """The adapter that is shipped for these weights, or None."""
    found = _made_for(path, folder)
    return None if found is None else load_adapter(found, config, weights_checksum(path))


def shipped_ending(path: Path, config: DecoderConfig, folder: Path = SHIPPED_ENDINGS) -> Ending | None:
    """The ending classifier that is shipped for these weights, or None."""
    found = _made_for(path, folder)
    return None if found is None else load_ending(found, config, weights_checksum(path))


def _made_for(path: Path, folder: Path) -> Path | None:
    """The file in `folder` that was made for these weights.

    Weights are only read for their checksum where something was made for weights of the same size.
    """
    for candidate in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(candidate, "pt") as file:
                said = file.metadata() or {}
        except (SafetensorError, OSError) as error:
            raise BadModelFile(f"{candidate} cannot be read ({error}): install rejoinder again") from None
        if said.get("base_bytes") != str(weights_size(path)):
            continue
        if said.get("base_sha256") == weights_checksum(path):
            return candidate
    return None


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
