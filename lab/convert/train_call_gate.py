"""Trains a call gate: the model reads requests in conversations with functions, and logistic regressions on its states
in their last row learn which calls they need.

`functions.json.xz` has sets of functions, each with requests that fit one of them, and with others.
`continuations.json.xz` has conversations with the same sets whose requests take one call, several at once, or one after
another. All figures are measured on sets that were left out of training.
"""

from __future__ import annotations

import json
import lzma
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from chat.types import Message, Tool, ToolCall
from lab.convert.read_states import last_states
from lab.convert.tool_prompts import as_read
from lab.convert.train_turn_completion import fit_logistic_regression, measure
from model.decode.tool_calls import declaration
from model.engine.call_gate import CallGate
from model.engine.loader import LoadedModel

_FUNCTIONS, _CONTINUATIONS = (Path(__file__).with_name(name) for name in ("functions.json.xz", "continuations.json.xz"))

_FOLDS = 8

_L2_WEIGHTS = (1e-3, 1e-2, 1e-1, 1.0)

_EXAMPLE_WEIGHT = 3
"""How often an example of another author counts: there are fewer of them."""

Question = Literal["fits", "several", "continues"]
"""What a gate is asked: the fields of `GateOdds`, in their order."""


@dataclass(frozen=True)
class LabelledPrompt:
    """A conversation that the next response may answer with calls.

    Attributes:
        group: the set of functions.
        tools: the functions on offer.
        answers: what is known about that response.
    """

    group: int
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    answers: dict[Question, bool]


@dataclass(frozen=True)
class GateMetrics:
    """The quality of a gate on sets that were left out. Field names are keys of its metadata.

    Attributes:
        prompts: their number.
        auc: area under the ROC curve, by question.
        accuracy: with both classes weighted equally, at even odds, by question.
    """

    prompts: int
    auc: dict[Question, float]
    accuracy: dict[Question, float]


def labelled_prompts(instructions: Sequence[str], seed: int) -> list[LabelledPrompt]:
    """All prompts, those of a set with the same instructions.

    Args:
        instructions: a set's are one of these, or none.
    """
    draw, prompts = random.Random(seed), list[LabelledPrompt]()
    groups = json.loads(lzma.decompress(_FUNCTIONS.read_bytes()))
    given = [(Message("system", draw.choice(instructions)),) if draw.random() < 0.5 else () for _ in groups]
    for number, group in enumerate(groups):
        tools = tuple(map(_tool, group["functions"]))
        for name, fits in (("fits", True), ("others", False)):
            prompts += [
                LabelledPrompt(number, (*given[number], Message("user", text)), tools, {"fits": fits})
                for text in group[name]
            ]
    for one in json.loads(lzma.decompress(_CONTINUATIONS.read_bytes())):
        number = one["group"]
        tools = tuple(map(_tool, [*groups[number]["functions"], *one["extra"]]))
        for messages, answers in _steps(one):
            prompts.append(LabelledPrompt(number, (*given[number], *messages), tools, answers))
    return prompts


def _steps(conversation: dict[str, Any]) -> Iterator[tuple[tuple[Message, ...], dict[Question, bool]]]:
    """The messages before each response of a conversation, and what is known about it. Calls that can be made at once
    are also made one after another, as where a response may make only one."""
    messages: tuple[Message, ...] = (Message("user", conversation["request"]),)
    for number, step in enumerate(conversation["steps"]):
        yield messages, ({"continues": True} if number else {"several": len(step["calls"]) > 1})
        calls = [
            ToolCall(f"{number}-{n}", call["name"], json.dumps(call["arguments"]))
            for n, call in enumerate(step["calls"])
        ]
        outputs = [
            Message("tool", text, tool_call_id=call.id) for call, text in zip(calls, step["outputs"], strict=True)
        ]
        alone = messages
        for call, output in zip(calls[:-1], outputs[:-1], strict=True):
            alone = (*alone, Message("assistant", "", [call]), output)
            yield alone, {"continues": True}
        messages = (*messages, Message("assistant", "", calls), *outputs)
    yield messages, {"continues": False}


def _tool(function: dict[str, Any]) -> Tool:
    return Tool(function["name"], function.get("description", ""), function["parameters"])


def read_examples(file: Path, first_group: int = 0) -> list[LabelledPrompt]:
    """Prompts of other authors: JSON Lines with `tools`, `messages`, and what is known, `fits`, `several` or both.

    Args:
        first_group: the number of their first group. What has the same functions is one.

    Raises:
        ValueError: a line is not such an example.
    """
    groups: dict[tuple[str, ...], int] = {}
    prompts = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            one = json.loads(line)
            tools = tuple(map(_tool, one["tools"]))
            messages = tuple(Message(message["role"], message["content"]) for message in one["messages"])
            answers = {question: bool(one[question]) for question in get_args(Question) if question in one}
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file.name}, line {number}: not an example of a call gate ({error!r})") from None
        if not (tools and messages and answers):
            raise ValueError(f"{file.name}, line {number}: it needs `tools`, `messages`, and `fits` or `several`")
        group = groups.setdefault(tuple(sorted(tool.name for tool in tools)), first_group + len(groups))
        prompts.append(LabelledPrompt(group, messages, tools, answers))
    return prompts


def train_call_gate(
    model: LoadedModel,
    instructions: Sequence[str],
    base: str,
    *,
    examples: Path | None = None,
    seed: int = 1,
    on_progress: Callable[[str, float], None] = lambda phase, done: None,
) -> tuple[CallGate, GateMetrics]:
    """Train a gate for a model, and measure it.

    Args:
        instructions: that conversations may have.
        base: sha256 of the model's weights.
        examples: more prompts, for `read_examples`.
        on_progress: called with the current phase and the share of it that is done.

    Raises:
        ValueError: a line of the examples is none.
    """
    prompts = labelled_prompts(instructions, seed)
    others = [] if examples is None else read_examples(examples, 1 + max(one.group for one in prompts))
    counted = [*range(len(prompts)), *list(range(len(prompts), len(prompts) + len(others))) * _EXAMPLE_WEIGHT]
    prompts += others
    states = states_of(model, prompts, partial(on_progress, "reading"))
    weights, biases, l2_weights = [], [], []
    metrics = GateMetrics(len(prompts), {}, {})
    for question in get_args(Question):
        asked = [n for n in counted if question in prompts[n].answers]
        known = torch.tensor([prompts[n].answers[question] for n in asked])
        groups = torch.tensor([prompts[n].group for n in asked])
        scored = {l2: _held_out(states[asked], known, groups, l2) for l2 in _L2_WEIGHTS}
        l2_weights.append(max(scored, key=lambda one: scored[one][0]))
        metrics.auc[question], metrics.accuracy[question] = scored[l2_weights[-1]]
        weight, bias = fit_logistic_regression(states[asked], known, l2_weights[-1])
        weights.append(weight)
        biases.append(bias)
    metadata = {"trained_on": f"{len(prompts)} prompts, seed {seed}, L2 {', '.join(f'{one:g}' for one in l2_weights)}"}
    return CallGate(torch.stack(weights), torch.tensor(biases), base, metadata), metrics


def states_of(model: LoadedModel, prompts: Sequence[LabelledPrompt], on_progress: Callable[[float], None]) -> Tensor:
    """What `last_states` delivers for the prompts: [n, hidden] float32."""
    groups = [(prompt.group, tuple(tool.name for tool in prompt.tools)) for prompt in prompts]
    encoded = [
        model.template.encode(as_read(model, prompt.messages), tools=[declaration(tool) for tool in prompt.tools])
        for prompt in prompts
    ]
    return last_states(model, encoded, groups, on_progress)


def _held_out(states: Tensor, known: Tensor, groups: Tensor, l2_weight: float) -> tuple[float, float]:
    """AUC and accuracy of what each set's prompts get from weights that were trained without it."""
    odds = torch.zeros(len(states))
    for fold in range(_FOLDS):
        out = groups % _FOLDS == fold
        weight, bias = fit_logistic_regression(states[~out], known[~out], l2_weight)
        odds[out] = states[out] @ weight + bias
    measured = measure(odds.sigmoid(), known)
    return measured.auc, measured.accuracy
