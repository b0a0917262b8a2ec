"""Trains a call gate: the model reads requests in conversations with functions, and a logistic regression on its states
in their last row learns whether one of the functions does what is asked for.

`functions.json` has sets of functions, each with requests that fit one of them, and with others. All figures are
measured on sets that were left out of training.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chat.types import Message, Tool
from model.convert.train_request_classifier import last_states
from model.convert.train_turn_completion import fit_logistic_regression, measure
from model.decode.tool_calls import declaration
from model.engine.binary_classifier import BinaryClassifier
from model.engine.loader import LoadedModel

_FILE = Path(__file__).with_name("functions.json")

_FOLDS = 8

_L2_WEIGHTS = (1e-3, 1e-2, 1e-1, 1.0)


@dataclass(frozen=True)
class FunctionRequest:
    """A request in a conversation with functions.

    Attributes:
        group: the set of functions.
        fits: whether one of them does what is asked for.
        instructions: of the conversation; empty for none.
    """

    group: int
    text: str
    tools: tuple[Tool, ...]
    fits: bool
    instructions: str


@dataclass(frozen=True)
class GateMetrics:
    """The quality of a gate on sets that were left out. Field names are keys of its metadata.

    Attributes:
        requests: their number.
        auc: area under the ROC curve.
        accuracy: with both classes weighted equally, at even odds.
    """

    requests: int
    auc: float
    accuracy: float


def function_requests(instructions: Sequence[str], seed: int, file: Path = _FILE) -> list[FunctionRequest]:
    """All requests, those of a set in conversations with the same instructions.

    Args:
        instructions: a set's are one of these, or none.
    """
    draw, requests = random.Random(seed), list[FunctionRequest]()
    for number, group in enumerate(json.loads(file.read_text(encoding="utf-8"))):
        tools = tuple(map(_tool, group["functions"]))
        given = draw.choice(instructions) if draw.random() < 0.5 else ""
        for name, fits in (("fits", True), ("others", False)):
            requests += [FunctionRequest(number, text, tools, fits, given) for text in group[name]]
    return requests


def _tool(function: dict[str, Any]) -> Tool:
    return Tool(function["name"], function.get("description", ""), function["parameters"])


def train_call_gate(
    model: LoadedModel,
    instructions: Sequence[str],
    base: str,
    base_bytes: int,
    *,
    seed: int = 1,
    on_progress: Callable[[float], None] = lambda done: None,
) -> tuple[BinaryClassifier, GateMetrics]:
    """Train a gate for a model, and measure it.

    Args:
        instructions: that conversations may have.
        base, base_bytes: sha256 and size of the model's weights, by which a bundled gate is found.
        on_progress: called with the share of the prompts that were read.
    """
    requests = function_requests(instructions, seed)
    states = states_of(model, requests, on_progress)
    fits, groups = torch.tensor([one.fits for one in requests]), torch.tensor([one.group for one in requests])
    scored = {l2: _held_out(states, fits, groups, l2) for l2 in _L2_WEIGHTS}
    l2_weight = max(scored, key=lambda one: scored[one].auc)
    metrics = scored[l2_weight]
    metadata = {
        "base_bytes": str(base_bytes),
        "trained_on": f"{len(requests)} requests, seed {seed}, L2 {l2_weight:g}",
        "held_out": json.dumps(asdict(metrics)),
    }
    return BinaryClassifier(*fit_logistic_regression(states, fits, l2_weight), base, metadata), metrics


def states_of(model: LoadedModel, requests: Sequence[FunctionRequest], on_progress: Callable[[float], None]) -> Tensor:
    """The states (`classified_states`) of the last row of each prompt: [n, hidden] float32."""
    groups: dict[int, list[int]] = {}
    for n, request in enumerate(requests):
        groups.setdefault(request.group, []).append(n)
    states: dict[int, Tensor] = {}
    for group in groups.values():
        for n, row in last_states(model, {n: _prompt(model, requests[n]) for n in group}):
            states[n] = row
        on_progress(len(states) / len(requests))
    return torch.stack([states[n] for n in range(len(requests))])


def _prompt(model: LoadedModel, request: FunctionRequest) -> list[int]:
    messages = [Message("system", request.instructions)] if request.instructions else []
    messages.append(Message("user", request.text))
    return model.template.encode(messages, tools=[declaration(tool) for tool in request.tools])


def _held_out(states: Tensor, fits: Tensor, groups: Tensor, l2_weight: float) -> GateMetrics:
    odds = torch.zeros(len(states))
    for fold in range(_FOLDS):
        out = groups % _FOLDS == fold
        gate = BinaryClassifier(*fit_logistic_regression(states[~out], fits[~out], l2_weight), "", {})
        odds[out] = gate.log_odds(states[out])
    one = BinaryClassifier(torch.ones(1), 0.0, "", {})
    measured = measure(one, odds[:, None], fits)
    return GateMetrics(len(states), measured.auc, measured.accuracy)
