"""Writes a tuned model: a checkpoint with updates of its matrices merged, in the form of the checkpoint itself.

In a GGUF file the updated matrices are Q8_0, which keeps updates that four bits would round away.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from model.checkpoint.checkpoint import Checkpoint, GGUFCheckpoint, SafetensorsCheckpoint, gguf_name
from model.checkpoint.gguf import split_parts
from model.checkpoint.tuned import KEY
from model.hub.store import write_atomically

if TYPE_CHECKING:
    from gguf import GGMLQuantizationType

_BLOCK = 32
"""Inputs of a block of Q8_0."""

Updates = Mapping[str, tuple[Tensor, Tensor]]
"""Low-rank updates of tensors, by name: b [outputs, rank] and a [rank, inputs], of which b a is added."""


def write_tuned(checkpoint: Checkpoint, updates: Updates, base: str, folder: Path) -> Path:
    """Write a checkpoint plus `updates`, atomically.

    Args:
        updates: float32.
        base: sha256 of the checkpoint's weights.
        folder: where to write `tuned.gguf`, or the folder `tuned`.

    Returns:
        The path to load it from.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(checkpoint, GGUFCheckpoint):
        path = folder / "tuned.gguf"
        write_atomically(path, lambda partial: _write_gguf(checkpoint, updates, base, partial))
        return path
    partial, path = folder / "tuned.partial", folder / "tuned"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    _write_folder(checkpoint, updates, base, partial)
    shutil.rmtree(path, ignore_errors=True)
    partial.rename(path)
    return path


def _write_gguf(checkpoint: GGUFCheckpoint, updates: Updates, base: str, path: Path) -> None:
    import gguf

    names = {gguf_name(name): name for name in updates}
    parts = [gguf.GGUFReader(part) for part in split_parts(checkpoint.path)]
    writer = gguf.GGUFWriter(path, checkpoint.config.family)
    writer.add_string(KEY, base)
    for key, field in parts[0].fields.items():
        if not key.startswith(("GGUF.", "split.", KEY)) and key != gguf.Keys.General.ARCHITECTURE:
            array = field.types[0] == gguf.GGUFValueType.ARRAY
            writer.add_key_value(key, field.contents(), field.types[0], field.types[-1] if array else None)
    tensors = [tensor for part in parts for tensor in part.tensors]
    kinds = {name: _kind(updates[names[name]][1].shape[1]) for name in names}
    for tensor in tensors:
        data, kind = tensor.data, kinds.get(tensor.name)
        if kind is None:
            writer.add_tensor_info(tensor.name, data.shape, data.dtype, data.nbytes, tensor.tensor_type)
        else:
            b, a = updates[names[tensor.name]]
            shape, (block, size) = (b.shape[0], a.shape[1]), gguf.GGML_QUANT_SIZES[kind]
            writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32), shape[0] * shape[1] // block * size, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in tensors:
        data = tensor.data
        if tensor.name in names:
            name = names[tensor.name]
            merged = checkpoint.as_stored(name, _merged(checkpoint.tensor(name), updates[name]))
            data = gguf.quants.quantize(merged.numpy(), kinds[tensor.name])
        writer.write_tensor_data(data)
    writer.close()


def _kind(inputs: int) -> GGMLQuantizationType:
    from gguf import GGMLQuantizationType

    return GGMLQuantizationType.F32 if inputs % _BLOCK else GGMLQuantizationType.Q8_0


def _merged(weight: Tensor, update: tuple[Tensor, Tensor]) -> Tensor:
    b, a = update
    return weight.float() + b @ a


def _write_folder(checkpoint: SafetensorsCheckpoint, updates: Updates, base: str, folder: Path) -> None:
    names = {checkpoint.stored_name(name): name for name in updates}
    for file in sorted(checkpoint.path.iterdir()):
        if file.suffix == ".safetensors":
            with safe_open(file, "pt") as opened:
                tensors: dict[str, Tensor] = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            for name in tensors.keys() & names.keys():
                tensors[name] = _merged(tensors[name], updates[names[name]]).to(tensors[name].dtype)
            save_file(tensors, folder / file.name, {"format": "pt"})
        elif file.is_file():
            shutil.copy(file, folder / file.name)
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**settings, KEY: base}, indent=2), encoding="utf-8")
