"""A prompt's beginning whose keys and values were trained for one task, in place of reading its text (prefix tuning,
arXiv 2101.00190, begun from the keys and values of a text, as in arXiv 2506.06266). The base weights stay as they are.

File: safetensors with `tokens` int32, which stand for it in prompts, and `keys` and `values` int8 [layers, kv_heads,
tokens, head_dim] with one scale for each number of a head: `….scale` float16 [layers, kv_heads, 1, head_dim].
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from model.checkpoint.bound_file import load_bound_file, save_bound_file
from model.checkpoint.checkpoint import DecoderConfig
from model.checkpoint.gguf import BadModelFile


@dataclass(frozen=True)
class TrainedPrefix:
    """A trained prefix in memory.

    Attributes:
        tokens: the ids with which prompts begin that are for the task.
        keys, values: [layers, kv_heads, tokens, head_dim], float.
        metadata: the file's metadata: how it was trained, and its figures.
    """

    tokens: tuple[int, ...]
    keys: Tensor
    values: Tensor
    metadata: dict[str, str]

    def save(self, path: Path, base: str) -> None:
        """Write it to a file, atomically. `base` is the sha256 of the model's weights."""
        tensors = {"tokens": torch.tensor(self.tokens, dtype=torch.int32)}
        for name, values in (("keys", self.keys), ("values", self.values)):
            scale = (values.abs().amax(2, keepdim=True) / 127).clamp(min=1e-6).half()
            tensors[name] = (values / scale.float()).round().clamp(-127, 127).to(torch.int8)
            tensors[f"{name}.scale"] = scale
        save_bound_file(path, tensors, base, self.metadata)


def load_trained_prefix(path: Path, config: DecoderConfig, base: str) -> TrainedPrefix:
    """Open a file that `TrainedPrefix.save` wrote, for a model of this shape, whose weights have the sha256 `base`.
    Raises BadModelFile: it is missing, damaged, or was made for other weights."""
    names = ("tokens", "keys", "values", "keys.scale", "values.scale")
    tensors, metadata = load_bound_file(path, "trained prefix", base=base, names=names)
    tokens = tensors["tokens"].flatten().tolist()
    shape = (config.layers, config.kv_heads, len(tokens), config.head_dim)
    expected = {"keys": shape, "values": shape}
    expected |= {f"{name}.scale": (*shape[:2], 1, shape[3]) for name in expected}
    if any(tensors[name].shape != size for name, size in expected.items()):
        raise BadModelFile(f"the trained prefix {path.name} has another shape than the model")
    if not all(isinstance(token, int) and 0 <= token < config.vocab_size for token in tokens):
        raise BadModelFile(f"the trained prefix {path.name} has tokens that the model has not")
    keys, values = (tensors[name].float() * tensors[f"{name}.scale"].float() for name in ("keys", "values"))
    return TrainedPrefix(tuple(tokens), keys, values, metadata)
