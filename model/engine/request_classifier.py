"""Recognizes requests that the assistant cannot fulfil: a logistic regression on what the language model's own forward
pass computes for the last row of the prompt. `model/convert/train_request_classifier.py` trains it.

Instructions alone do not make a small model refuse: it pretends to order, to call, and to see the weather. The
classifier knows the whole prompt, with what was said before. Nor can a small model be trusted to know whether it needs
a tool: that is the classifier's second question.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from model.checkpoint.bound_file import load_bound_file, save_bound_file
from model.checkpoint.checkpoint import DecoderConfig
from model.checkpoint.gguf import BadModelFile

RequestKind = Literal["answerable", "unable", "unclear", "unsafe", "crisis", "action", "sum"]
"""`unable`: it needs an action, or knowledge of the present or of the user's life, for which there is no tool.
`unclear`: it refers to something that was never mentioned. `unsafe`: it asks for help with harm. `crisis`: with harm to
oneself. `action`: a built-in tool does it; without tools it is one of those that the assistant is unable to fulfil.
`sum`: it is to be computed; without tools the model answers it as well as it can."""

KINDS: tuple[RequestKind, ...] = get_args(RequestKind)

Verdict = Literal["answerable", "unable", "unclear", "unsafe", "crisis", "task"]
"""What follows for a response."""

_UNABLE, _ACTION, _SUM = (KINDS.index(kind) - 1 for kind in ("unable", "action", "sum"))


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
        threshold: of these log odds, from which a request counts as one that cannot be fulfilled.
        task_threshold: the same for an action or a sum, which the tools do.
        instructions: `instructions_checksum` of those that the other kinds were trained with. Tasks were trained with
            several.
        base: sha256 of the weights whose forward passes it was trained on.
        metadata: the file's metadata: how it was trained, and its figures.
    """

    weight: Tensor
    bias: Tensor
    threshold: float
    task_threshold: float
    instructions: str
    base: str
    metadata: dict[str, str]

    def scores(self, states: Tensor) -> Tensor:
        """Log odds of each kind against `answerable`: [n, hidden] → [n, kinds - 1] float32."""
        return states @ self.weight.T + self.bias

    def classify(self, features: Tensor, *, may_be_task: bool) -> Verdict:
        """What the request is whose prompt has these features [features] in its last row: `answerable`, unless it is
        clearly something else.

        Args:
            may_be_task: whether there are tools that do what they can do.
        """
        scores = self.scores(classified_states(features, self.weight.shape[1])[None])
        verdicts, odds = verdict_odds(scores, may_be_task=may_be_task)
        best = int(odds[0].argmax())
        if verdicts[best] not in ("unsafe", "crisis") and verdicts[-1] == "task" and odds[0, -1] > self.task_threshold:
            return "task"  # whoever writes the program for it finds out what cannot be done
        return verdicts[best] if verdicts[best] != "task" and odds[0, best] > self.threshold else "answerable"

    def is_valid_for(self, instructions: str) -> bool:
        """Whether it knows what cannot be fulfilled in conversations with these instructions."""
        return instructions_checksum(instructions) == self.instructions

    def save(self, path: Path) -> None:
        """Write it to a file, atomically. The weights are rounded to 16 bits."""
        thresholds = torch.tensor([self.threshold, self.task_threshold])
        tensors = {"weight": self.weight.half(), "bias": self.bias, "thresholds": thresholds}
        trained_with = {"instructions_sha256": self.instructions}
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
    names = ("weight", "bias", "thresholds")
    tensors, metadata = load_bound_file(path, "request classifier", advice, base=base, names=names)
    weight, bias, thresholds = (tensors[name].float() for name in names)
    num_kinds = len(KINDS) - 1
    if weight.shape != (num_kinds, config.hidden) or bias.shape != (num_kinds,) or thresholds.shape != (2,):
        raise BadModelFile(f"the request classifier {path.name} has another shape than the model")
    instructions = metadata.get("instructions_sha256", "")
    threshold, task_threshold = thresholds.tolist()
    return RequestClassifier(weight, bias, threshold, task_threshold, instructions, base, metadata)


def verdict_odds(scores: Tensor, *, may_be_task: bool) -> tuple[tuple[Verdict, ...], Tensor]:
    """The log odds of each verdict against `answerable`.

    Args:
        scores: [n, kinds - 1] of `RequestClassifier.scores`.

    Returns:
        The verdicts, and [n, verdicts] float32.
    """
    refused = scores[:, :_ACTION]
    task = torch.logsumexp(scores[:, [_ACTION, _SUM]], 1, keepdim=True)
    if may_be_task:
        return ("unable", "unclear", "unsafe", "crisis", "task"), torch.cat([refused, task], 1)
    unable = torch.logsumexp(scores[:, [_UNABLE, _ACTION]], 1, keepdim=True)
    return ("unable", "unclear", "unsafe", "crisis"), torch.cat([unable, refused[:, 1:]], 1)
