"""A logistic regression on what the language model's own forward pass computes for a row: whether a turn is complete
(`turn_completion.py`).
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
class BinaryClassifier:
    """P = σ(weight · state + bias).

    Attributes:
        weight: [hidden] float32.
        base: sha256 of the weights whose states it was trained on.
        metadata: the file's metadata: how it was trained, and its figures.
    """

    weight: Tensor
    bias: float
    base: str
    metadata: dict[str, str]

    def log_odds(self, states: Tensor) -> Tensor:
        """States [n, hidden] → [n] float32, nats."""
        return (states.float().cpu() * self.weight).sum(-1) + self.bias

    def __call__(self, states: Tensor) -> Tensor:
        """States [n, hidden] → [n] float32, 0 to 1."""
        return torch.sigmoid(self.log_odds(states))

    def save(self, path: Path) -> None:
        """Write it to a file, atomically."""
        tensors = {"weight": self.weight.contiguous(), "bias": torch.tensor(self.bias)}
        save_bound_file(path, tensors, self.base, self.metadata)


def load_binary_classifier(path: Path, config: DecoderConfig, base: str, kind: str) -> BinaryClassifier:
    """Open a file that `BinaryClassifier.save` wrote.

    Args:
        config: the model's shape.
        base: sha256 of the model's weights.
        kind: what it is, for error messages.

    Raises:
        BadModelFile: the file is missing, damaged, or was made for other weights.
    """
    advice = "train one for these weights, or run without"
    tensors, metadata = load_bound_file(path, kind, advice, base=base, names=("weight", "bias"))
    weight, bias = tensors["weight"].float(), tensors["bias"]
    if weight.shape != (config.hidden,) or bias.numel() != 1:
        raise BadModelFile(f"the {kind} {path.name} has another shape than the model")
    return BinaryClassifier(weight, float(bias), base, metadata)
