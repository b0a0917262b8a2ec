"""Recognizes requests that the assistant cannot fulfil: a logistic regression on what the language model's own forward
pass computes for the last row of the prompt. `model/convert/train_request_classifier.py` trains it.

Instructions alone do not make a small model refuse: it pretends to order, to call, and to see the weather. The
classifier knows the whole prompt, with what was said before. It is only valid for the instructions and the tools that
it was trained with, and is not asked in other conversations.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from model.checkpoint.bound_file import load_bound_file, save_bound_file
from model.checkpoint.checkpoint import DecoderConfig
from model.checkpoint.gguf import BadModelFile

RequestKind = Literal["answerable", "unable", "unclear", "unsafe", "crisis"]
"""`unable`: it needs an action, or knowledge of the present or of the user's life, for which there is no tool.
`unclear`: it refers to something that was never mentioned. `unsafe`: it asks for help with harm. `crisis`: with harm to
oneself."""

KINDS: tuple[RequestKind, ...] = get_args(RequestKind)


def classified_states(features: Tensor, hidden: int) -> Tensor:
    """The part of a row's features (`ForwardInput.on_features`) that is classified: the states after two thirds of the
    layers. Those of the last layer are about the next token, and tell kinds of requests apart less well.

    Args:
        features: [..., features].
        hidden: the size of a state.

    Returns:
        [..., hidden] float32 on the CPU.
    """
    return features[..., -2 * hidden : -hidden].float().cpu()


def instructions_checksum(instructions: str) -> str:
    """sha256 of the instructions that a classifier was trained with."""
    return hashlib.sha256(instructions.encode()).hexdigest()


@dataclass(frozen=True)
class RequestClassifier:
    """log P(kind) - log P(answerable) = weight · state + bias.

    Attributes:
        weight: [kinds - 1, hidden] float32, in the order of `KINDS` after `answerable`.
        bias: [kinds - 1] float32.
        threshold: of these log odds, from which a request counts as another kind than `answerable`.
        instructions: `instructions_checksum` of those that it was trained with.
        tools: names of the tools that it was trained with.
        base: sha256 of the weights whose forward passes it was trained on.
        metadata: the file's metadata: how it was trained, and its figures.
    """

    weight: Tensor
    bias: Tensor
    threshold: float
    instructions: str
    tools: frozenset[str]
    base: str
    metadata: dict[str, str]

    def scores(self, states: Tensor) -> Tensor:
        """Log odds of each kind against `answerable`: [n, hidden] → [n, kinds - 1] float32."""
        return states @ self.weight.T + self.bias

    def classify(self, features: Tensor) -> RequestKind:
        """The kind of the request whose prompt has these features [features] in its last row: `answerable`, unless it
        is clearly another one."""
        scores = self.scores(classified_states(features, self.weight.shape[1])[None])[0]
        best = int(scores.argmax())
        return KINDS[1 + best] if float(scores[best]) > self.threshold else "answerable"

    def is_valid_for(self, instructions: str, tools: Collection[str]) -> bool:
        """Whether it knows conversations with these instructions and the tools of these names."""
        return self.tools.issuperset(tools) and instructions_checksum(instructions) == self.instructions

    def save(self, path: Path) -> None:
        """Write it to a file, atomically. The weights are rounded to 16 bits."""
        tensors = {"weight": self.weight.half(), "bias": self.bias, "threshold": torch.tensor(self.threshold)}
        trained_with = {"instructions_sha256": self.instructions, "tools": json.dumps(sorted(self.tools))}
        save_bound_file(path, tensors, self.base, {**self.metadata, **trained_with})


def load_request_classifier(path: Path, config: DecoderConfig, base: str) -> RequestClassifier:
    """Open a file that `RequestClassifier.save` wrote.

    Args:
        config: the model's shape.
        base: sha256 of the model's weights.

    Raises:
        BadModelFile: the file is missing, damaged, or was made for other weights.
    """
    advice = "train one for these weights, or run without"
    names = ("weight", "bias", "threshold")
    tensors, metadata = load_bound_file(path, "request classifier", advice, base=base, names=names)
    weight, bias, threshold = (tensors[name].float() for name in names)
    num_kinds = len(KINDS) - 1
    if weight.shape != (num_kinds, config.hidden) or bias.shape != (num_kinds,) or threshold.numel() != 1:
        raise BadModelFile(f"the request classifier {path.name} has another shape than the model")
    instructions, tools = metadata.get("instructions_sha256", ""), frozenset(json.loads(metadata.get("tools", "[]")))
    return RequestClassifier(weight, bias, float(threshold), instructions, tools, base, metadata)
