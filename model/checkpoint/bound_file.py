"""Safetensors files that belong to one base model's weights: adapters, turn completion classifiers, training text.

Their metadata identifies those weights by checksum.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from model.checkpoint.gguf import BadModelFile
from model.hub.store import write_atomically


def save_bound_file(path: Path, tensors: dict[str, Tensor], base: str, metadata: dict[str, str]) -> None:
    """Write a file that belongs to the weights with sha256 `base`, atomically."""
    write_atomically(path, lambda partial: save_file(tensors, partial, {**metadata, "base_sha256": base}))


def load_bound_file(
    path: Path,
    kind: str,
    advice: str = "train one for these weights, or run without",
    *,
    base: str | None = None,
    names: Sequence[str] = (),
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a file that `save_bound_file` wrote.

    Args:
        kind: what the file is, for error messages.
        advice: what the user should do if the file cannot be used, for error messages.
        base: sha256 of the weights that the file must belong to; None accepts any.
        names: the tensors that it must contain; all that it contains if empty.

    Raises:
        BadModelFile: the file is missing, damaged, or belongs to other weights.
    """
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in (names or file.keys())}
            metadata = dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise BadModelFile(f"the {kind} {path} cannot be read ({error}): {advice}") from None
    file_base = metadata.get("base_sha256") or "unknown"
    if base not in (None, file_base):
        raise BadModelFile(
            f"the {kind} {path.name} was made for weights with sha256 {file_base}, and these have {base}: {advice}"
        )
    return tensors, metadata


def stated_base(path: Path) -> str | None:
    """sha256 of the weights that a file says it belongs to; None if it cannot be read, which loading it explains."""
    try:
        with safe_open(path, "pt") as file:
            return (file.metadata() or {}).get("base_sha256")
    except (SafetensorError, OSError):
        return None
