"""Recognizes requests that the assistant cannot fulfil: a logistic regression on what the language model's own forward
pass computes for the last row of the prompt. `lab/convert/train_request_classifier.py` trains it.

Instructions alone do not make a small model refuse: it pretends to order, to call, and to see the weather. The
classifier knows the whole prompt, with what was said before. It also recognizes a false premise, which a small model
answers as if it were true, and whether a tool is needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from model.checkpoint.bound_file import load_bound_file, save_bound_file
from model.checkpoint.checkpoint import DecoderConfig
from model.checkpoint.gguf import BadModelFile

RequestKind = Literal[
    "answerable", "unable", "unclear", "unsafe", "crisis", "unknowable", "mistaken", "danger", "dismissal", "unsure",
    "emergency", "action", "sum",
]  # fmt: skip
"""`unable`: it needs an action, or knowledge of the present or of the user's life, for which there is no tool.
`unclear`: it refers to something that was never mentioned. `unsafe`: it asks for help with harm. `crisis`: with harm to
oneself. `unknowable`: nobody could answer it from what was said. `mistaken`: it takes something for granted that is
false. `danger`: an everyday question to which a wrong answer could hurt somebody. `dismissal`: the assistant is to be
silent. `unsure`: a question of fact that this model would probably answer wrongly. `emergency`: something dangerous is
happening to the user, or to somebody with them. `action`: a built-in tool does it; without tools it is one of those
that the assistant is unable to fulfil. `sum`: it is to be computed; without tools the model answers it as well as it
can."""

KINDS: tuple[RequestKind, ...] = get_args(RequestKind)

Verdict = Literal[
    "answerable", "unable", "unclear", "unsafe", "crisis", "unknowable", "mistaken", "danger", "dismissal", "unsure",
    "emergency", "task",
]  # fmt: skip
"""What follows for a response."""

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)[1:]
"""All but `answerable`."""

_UNABLE, _ACTION, _SUM = (KINDS.index(kind) - 1 for kind in ("unable", "action", "sum"))

_REFUSED = tuple(KINDS.index(kind) - 1 for kind in ("unable", "unclear", "unsafe", "crisis", "unknowable"))

_UNSURE, _EMERGENCY = VERDICTS.index("unsure"), VERDICTS.index("emergency")

_BEFORE_TASKS = ("unsafe", "crisis", "unknowable", "danger", "dismissal")
"""Verdicts that are not left to a program: it would do harm, or make something up. Whoever writes the program finds out
the others."""


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
        thresholds: [verdicts] float32, of the log odds from which a request counts as one of these, in the order of
            `VERDICTS`.
        instructions: `instructions_checksum` of those that the other kinds were trained with. Tasks were trained with
            several.
        base: sha256 of the weights whose forward passes it was trained on.
        metadata: the file's metadata: how it was trained, and its figures.
    """

    weight: Tensor
    bias: Tensor
    thresholds: Tensor
    instructions: str
    base: str
    metadata: dict[str, str]

    def scores(self, states: Tensor) -> Tensor:
        """Log odds of each kind against `answerable`: [n, hidden] → [n, kinds - 1] float32."""
        return states @ self.weight.T + self.bias

    def scores_of(self, features: Tensor) -> Tensor:
        """The scores [kinds - 1] of the request whose prompt has these features [features] in its last row."""
        return self.scores(classified_states(features, self.weight.shape[1])[None])[0]

    def verdict(self, scores: Tensor, *, may_be_task: bool, leaving_out: Collection[Verdict] = ()) -> Verdict:
        """What a request with these scores [kinds - 1] is: `answerable`, unless it is clearly something else.

        Args:
            may_be_task: whether there are tools that do what they can do.
            leaving_out: what nobody would make use of.
        """
        odds = verdict_odds(scores[None], may_be_task=may_be_task)[0]
        is_over = odds > self.thresholds
        for verdict in leaving_out:
            is_over[VERDICTS.index(verdict)] = False
        if is_over[_EMERGENCY]:
            return "emergency"
        if is_over.sum() > 1:
            is_over[_UNSURE] = False  # it has better reasons
        best = VERDICTS[int(odds.where(is_over, -torch.inf).argmax())]
        if is_over[-1] and best not in _BEFORE_TASKS:
            return "task"
        return best if is_over.any() else "answerable"

    def is_valid_for(self, instructions: str) -> bool:
        """Whether it knows what cannot be fulfilled in conversations with these instructions."""
        return instructions_checksum(instructions) == self.instructions

    def save(self, path: Path) -> None:
        """Write it to a file, atomically. The weights are rounded to 16 bits."""
        tensors = {"weight": self.weight.half(), "bias": self.bias, "thresholds": self.thresholds}
        trained_with = {"instructions_sha256": self.instructions}
        save_bound_file(path, tensors, self.base, {**self.metadata, **trained_with})


def load_request_classifier(path: Path, config: DecoderConfig, base: str) -> RequestClassifier:
    """Open a file that `RequestClassifier.save` wrote, for a model of this shape, whose weights have the sha256 `base`.
    Raises BadModelFile: it is missing, damaged, or was made for other weights."""
    names = ("weight", "bias", "thresholds")
    tensors, metadata = load_bound_file(path, "request classifier", base=base, names=names)
    weight, bias, thresholds = (tensors[name].float() for name in names)
    num_kinds = len(KINDS) - 1
    if weight.shape != (num_kinds, config.hidden) or bias.shape != (num_kinds,) or thresholds.shape != (len(VERDICTS),):
        raise BadModelFile(f"the request classifier {path.name} has another shape: train it again with this version")
    return RequestClassifier(weight, bias, thresholds, metadata.get("instructions_sha256", ""), base, metadata)


def refusal_odds(scores: Tensor) -> float:
    """The highest log odds of a kind that is to be declined or asked back, of scores [kinds - 1]."""
    return float(scores[list(_REFUSED)].max())


def verdict_odds(scores: Tensor, *, may_be_task: bool) -> Tensor:
    """The log odds of each verdict against `answerable`: [n, verdicts] float32, in the order of `VERDICTS`.

    Args:
        scores: [n, kinds - 1] of `RequestClassifier.scores`.
        may_be_task: see `RequestClassifier.verdict`. Otherwise an action is one that the assistant is unable to do.
    """
    odds = torch.cat([scores[:, :_ACTION], torch.logsumexp(scores[:, [_ACTION, _SUM]], 1, keepdim=True)], 1)
    if not may_be_task:
        odds[:, _UNABLE] = torch.logsumexp(scores[:, [_UNABLE, _ACTION]], 1)
        odds[:, -1] = -torch.inf
    return odds
