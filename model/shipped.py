"""Which adapter goes with which weights: those that are shipped inside this package, found by checksum."""

from __future__ import annotations

import hashlib
from pathlib import Path

from safetensors import SafetensorError, safe_open

from model.adapter import Adapter, load_adapter
from model.gguf_file import BadModelFile
from model.weights import DecoderConfig

SHIPPED = Path(__file__).parent / "adapters"

_CHUNK = 8 << 20


def weights_size(path: Path) -> int:
    """Bytes of a checkpoint's weights."""
    return sum(file.stat().st_size for file in _files(path))


def weights_checksum(path: Path) -> str:
    """sha256 of a GGUF file, or of a folder's safetensors files in order of their names."""
    digest = hashlib.sha256()
    for file in _files(path):
        with file.open("rb") as opened:
            while chunk := opened.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


def shipped_adapter(path: Path, config: DecoderConfig, folder: Path = SHIPPED) -> Adapter | None:
    """The adapter that is shipped for these weights, or None.

    Weights are only read for their checksum where a shipped adapter was made for weights of the same size.
    """
    checksum = None
    for candidate in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(candidate, "pt") as file:
                said = file.metadata() or {}
        except (SafetensorError, OSError) as error:
            raise BadModelFile(f"the adapter {candidate} cannot be read ({error}): install rejoinder again") from None
        if said.get("base_bytes") != str(weights_size(path)):
            continue
        checksum = checksum or weights_checksum(path)
        if said.get("base_sha256") == checksum:
            return load_adapter(candidate, config, checksum)
    return None


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
