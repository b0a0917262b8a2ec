"""Files that belong to a base model's weights (adapters, ending classifiers, training text): safetensors whose metadata
names those weights by their checksum.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from model.gguf_file import BadModelFile
from model.store import write_whole


def save_tensors(path: Path, tensors: dict[str, Tensor], base: str, metadata: dict[str, str]) -> None:
    """Write a file for the weights with sha256 `base`, atomically."""
    write_whole(path, lambda partial: save_file(tensors, partial, {**metadata, "base_sha256": base}))


def load_tensors(
    path: Path, what: str, advice: str, *, base: str | None = None, names: Sequence[str] = ()
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file that `save_tensors` wrote, and its metadata.

    Args:
        what: the file is, for the person who reads an error, who is given `advice`.
        base: sha256 of the weights it has to belong to; any when None.
        names: tensors that it must hold.

    Raises:
        BadModelFile: missing, damaged, or made for other weights.
    """
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in (names or file.keys())}
            metadata = dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise BadModelFile(f"the {what} {path} cannot be read ({error}): {advice}") from None
    made_for = metadata.get("base_sha256") or "unknown"
    if base not in (None, made_for):
        raise BadModelFile(
            f"the {what} {path.name} was made for weights with sha256 {made_for}, and these have {base}: {advice}"
        )
    return tensors, metadata
