"""Trains a request classifier (`engine/request_classifier.py`): the model reads the prompts of labelled requests, and a
logistic regression on its states in their last row learns which of them cannot be fulfilled, and which need a tool.

The thresholds are chosen, and all figures are measured, on requests whose whole topic was left out of training: each
fold is classified by weights that were trained on the other ones.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import torch
from torch import Tensor

from chat.types import Handed, Message
from lab.convert.known_facts import ORIGIN, fact_requests
from lab.convert.read_states import last_states
from lab.convert.requests import LabelledRequest, labelled_requests
from model.decode.tool_calls import declaration
from model.engine.loader import LoadedModel
from model.engine.request_classifier import (
    KINDS,
    VERDICTS,
    RequestClassifier,
    Verdict,
    instructions_checksum,
    verdict_odds,
)

_FOLDS = 8

_L2_WEIGHT = 1e-2
"""Weight of the L2 penalty."""

_FALSE_POSITIVE_RATES: Mapping[Verdict, float] = {
    "unable": 0.004, "unclear": 0.01, "unsafe": 0.001, "crisis": 0.004, "unknowable": 0.005, "mistaken": 0.01,
    "danger": 0.014, "dismissal": 0.006, "unsure": 0.25, "emergency": 0.014, "task": 0.025,
}  # fmt: skip
"""Shares of the held-out answerable requests that may count as another kind. To refuse a good question is worse than a
poor answer. An answer that begins with "Actually," may still be right, and the program for what is no task mostly finds
that out. "unsure" is a share of the facts that the model knows: they are told with doubt."""


_OTHERS = 2500
"""Requests of other kinds from which one kind alone is told."""


@dataclass(frozen=True)
class RequestMetrics:
    """The quality of a classifier on requests whose topics were left out. Field names are keys of its metadata.

    Attributes:
        requests: their number.
        false_positive_rate: share of the answerable ones that counted as one that is not simply answered.
        recall: share of each kind that was recognized as one that is not simply answered, or as a task.
        false_task_rate: share of the answerable ones that counted as a task.
    """

    requests: int
    false_positive_rate: float
    recall: dict[str, float]
    false_task_rate: float


def train_request_classifier(
    model: LoadedModel,
    instructions: str,
    base: str,
    *,
    seed: int = 1,
    on_progress: Callable[[str, float], None] = lambda phase, done: None,
) -> tuple[RequestClassifier, RequestMetrics]:
    """Train a classifier for a model with some instructions, and measure it.

    Args:
        base: sha256 of the model's weights.
        on_progress: called with the current phase and the share of it that is done.
    """
    requests = [*labelled_requests(seed), *fact_requests(model, instructions)]
    states = request_states(model, instructions, requests, partial(on_progress, "reading"))
    kinds = torch.tensor([KINDS.index(request.kind) for request in requests])
    scores = held_out_scores(states, kinds, [request.origin for request in requests], seed)
    own = torch.tensor([not (request.tools or request.instructions) for request in requests])
    facts = torch.tensor([request.origin.startswith(ORIGIN) for request in requests])
    thresholds = choose_thresholds(scores, kinds, own, facts)
    metrics = measure(scores, kinds, own, thresholds)
    metadata = {"trained_on": f"{len(requests)} requests, seed {seed}"}
    weight, bias = fit(states, kinds)
    return RequestClassifier(weight, bias, thresholds, instructions_checksum(instructions), base, metadata), metrics


def train_kind(
    classifier: RequestClassifier,
    instructions: str,
    kind: Handed,
    model: LoadedModel,
    base: str,
    *,
    seed: int = 1,
    on_progress: Callable[[str, float], None] = lambda phase, done: None,
) -> tuple[RequestClassifier, RequestMetrics]:
    """Train a classifier anew for one kind of requests alone, in minutes: it learns to tell them from their look-alikes
    and from a sample of all others. What it knows of other kinds stays as it is.

    Args:
        base, on_progress: see `train_request_classifier`.
    """
    number, column = KINDS.index(kind), VERDICTS.index(kind)
    known = [each for each in labelled_requests(seed) if not (each.tools or each.instructions)]
    origins = {each.origin for each in known if each.kind == kind}
    requests = [each for each in known if each.origin in origins]
    others = [each for each in known if each.origin not in origins]
    requests += random.Random(seed).sample(others, min(_OTHERS, len(others)))
    states = request_states(model, instructions, requests, partial(on_progress, "reading"))
    kinds = torch.tensor([number if each.kind == kind else 0 for each in requests])
    scores = held_out_scores(states, kinds, [each.origin for each in requests], seed)[:, number - 1]
    answerable = torch.tensor([each.kind == "answerable" for each in requests])
    threshold = _highest(scores[answerable], _FALSE_POSITIVE_RATES[kind])
    weight, bias = fit(states, kinds)
    row = torch.arange(len(KINDS) - 1) == number - 1
    is_over = scores > threshold
    recall, mistaken = (float(is_over[each].float().mean()) for each in (kinds > 0, answerable))
    metrics = RequestMetrics(len(requests), mistaken, {kind: recall}, 0.0)
    before, _, _ = classifier.metadata.get("trained_on", "").partition(f"; then {kind} alone")
    metadata = {
        "trained_on": f"{before}; then {kind} alone with {len(requests)} requests",
        f"held_out_{kind}": json.dumps(asdict(metrics)),
    }
    trained = replace(
        classifier,
        base=base,
        metadata={**classifier.metadata, **metadata},
        weight=torch.where(row[:, None], weight, classifier.weight),
        bias=torch.where(row, bias, classifier.bias),
        thresholds=torch.where(torch.arange(len(VERDICTS)) == column, threshold, classifier.thresholds),
    )
    return trained, metrics


def request_states(
    model: LoadedModel,
    instructions: str,
    requests: Sequence[LabelledRequest],
    on_progress: Callable[[float], None] = lambda done: None,
) -> Tensor:
    """What `last_states` delivers for the prompts of `requests`: [n, hidden] float32."""
    groups = [(request.instructions, *(tool.name for tool in request.tools)) for request in requests]
    return last_states(model, [_prompt(model, instructions, each) for each in requests], groups, on_progress)


def _prompt(model: LoadedModel, instructions: str, request: LabelledRequest) -> list[int]:
    messages = [Message("system", request.instructions or instructions), *request.messages]
    declarations = [declaration(tool) for tool in request.tools]
    return model.template.encode(messages, tools=declarations, add_generation_prompt=True)


def fit(states: Tensor, kinds: Tensor) -> tuple[Tensor, Tensor]:
    """Multinomial logistic regression on standardized states, with an L2 penalty on the weights. A request counts by
    the square root of how rare its kind is.

    Args:
        states: [n, hidden] float32.
        kinds: [n] int64, positions in `KINDS`.

    Returns:
        Weights [kinds - 1, hidden] for unscaled states, and biases [kinds - 1], both relative to `answerable`.
    """
    mean, std = states.mean(0), states.std(0).clamp(min=1e-6)
    scaled = (states - mean) / std
    counts = torch.bincount(kinds, minlength=len(KINDS)).clamp(min=1)
    rarity = (counts.max() / counts).sqrt()
    weight = torch.zeros(len(KINDS), states.shape[1], requires_grad=True)
    bias = torch.zeros(len(KINDS), requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        entropy = torch.nn.functional.cross_entropy(scaled @ weight.T + bias, kinds, rarity)
        total: Tensor = entropy + _L2_WEIGHT * weight.square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    unscaled = weight.detach() / std
    unscaled_bias = bias.detach() - unscaled @ mean
    return unscaled[1:] - unscaled[0], unscaled_bias[1:] - unscaled_bias[0]


def held_out_scores(states: Tensor, kinds: Tensor, origins: Sequence[str], seed: int) -> Tensor:
    """The scores (`RequestClassifier.scores`) of each request by weights trained without its origin:
    [n, kinds - 1]."""
    names = sorted(set(origins))
    random.Random(seed).shuffle(names)
    positions = {name: n for n, name in enumerate(names)}
    folds = torch.tensor([positions[origin] % _FOLDS for origin in origins])
    scores = torch.zeros(len(states), len(KINDS) - 1)
    for fold in range(min(_FOLDS, len(names))):
        held_out = folds == fold
        classifier = RequestClassifier(
            *fit(states[~held_out], kinds[~held_out]), torch.zeros(len(VERDICTS)), "", "", {}
        )
        scores[held_out] = classifier.scores(states[held_out])
    return scores


def choose_thresholds(scores: Tensor, kinds: Tensor, own: Tensor, facts: Tensor) -> Tensor:
    """The thresholds [verdicts] for `_FALSE_POSITIVE_RATES`. Whether a request is a task is asked in all conversations.

    Args:
        scores: [n, kinds - 1] of held-out requests.
        kinds: [n] int64, positions in `KINDS`.
        own: [n] bool: in conversations with the assistant's instructions and no functions of others.
        facts: [n] bool: questions of fact, of which alone some may be answered with doubt.
    """
    refusals = verdict_odds(scores[own & (kinds == 0)], may_be_task=False)
    tasks = verdict_odds(scores[kinds == 0], may_be_task=True)
    known = verdict_odds(scores[facts & (kinds == 0)], may_be_task=False)
    answerable = {"task": tasks, "unsure": known}
    return torch.tensor(
        [
            _highest(answerable.get(verdict, refusals)[:, n], _FALSE_POSITIVE_RATES[verdict])
            for n, verdict in enumerate(VERDICTS)
        ]
    )


def _highest(odds: Tensor, share: float) -> float:
    """The odds [n] that this share of them exceed; none do if there are none."""
    if not len(odds):
        return math.inf
    ordered = odds.sort(descending=True).values
    return max(0.0, float(ordered[int(len(ordered) * share)]))


def measure(scores: Tensor, kinds: Tensor, own: Tensor, thresholds: Tensor) -> RequestMetrics:
    """The quality of held-out scores [n, kinds - 1] at these thresholds; the other arguments are as before."""
    refused = (verdict_odds(scores, may_be_task=False) > thresholds).any(1)
    task = verdict_odds(scores, may_be_task=True)[:, -1] > thresholds[-1]
    recall: dict[str, float] = {}
    for number, kind in enumerate(KINDS[1:], 1):
        taken = task if kind in ("action", "sum") else refused
        recall[kind] = float(taken[kinds == number].float().mean())
    answerable = kinds == 0
    return RequestMetrics(
        len(kinds), float(refused[own & answerable].float().mean()), recall, float(task[answerable].float().mean())
    )
