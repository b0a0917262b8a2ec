"""Trains a call gate: the model reads requests in conversations with functions, and logistic regressions on its states
in their last row learn which calls they need.

`functions.json` has sets of functions, each with requests that fit one of them, and with others. `continuations.json`
has conversations with the same sets whose requests take one call, several at once, or one after another. All figures
are measured on sets that were left out of training.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from chat.types import Message, Tool, ToolCall
from model.convert.read_states import last_states
from model.convert.tool_prompts import as_read
from model.convert.train_turn_completion import fit_logistic_regression, measure
from model.decode.tool_calls import declaration
from model.engine.call_gate import CallGate, load_call_gate
from model.engine.loader import LoadedModel

_FUNCTIONS, _CONTINUATIONS = (Path(__file__).with_name(name) for name in ("functions.json", "continuations.json"))

_FOLDS = 8

_L2_WEIGHTS = (1e-3, 1e-2, 1e-1, 1.0)

_L2_WEIGHT_FROM_START = 0.3
"""Penalty on what a gate that was trained before is changed by."""

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
    groups = json.loads(_FUNCTIONS.read_text(encoding="utf-8"))
    given = [(Message("system", draw.choice(instructions)),) if draw.random() < 0.5 else () for _ in groups]
    for number, group in enumerate(groups):
        tools = tuple(map(_tool, group["functions"]))
        for name, fits in (("fits", True), ("others", False)):
            prompts += [
                LabelledPrompt(number, (*given[number], Message("user", text)), tools, {"fits": fits})
                for text in group[name]
            ]
    for one in json.loads(_CONTINUATIONS.read_text(encoding="utf-8")):
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
    start: Path | None = None,
    seed: int = 1,
    on_progress: Callable[[str, float], None] = lambda phase, done: None,
) -> tuple[CallGate, GateMetrics]:
    """Train a gate for a model, and measure it.

    Args:
        instructions: that conversations may have.
        base: sha256 of the model's weights.
        examples: more prompts, for `read_examples`.
        start: a gate to continue with the examples and about as many other prompts, so that it forgets nothing;
            questions that the examples do not answer stay as they are.
        on_progress: called with the current phase and the share of it that is done.

    Raises:
        ValueError: a line of the examples is none, or there are none to continue with.
        BadModelFile: `start` is no call gate of this model.
    """
    trained = None if start is None else load_call_gate(start, model.decoder.config, base)
    prompts = labelled_prompts(instructions, seed)
    own = [] if examples is None else read_examples(examples, 1 + max(one.group for one in prompts))
    questions = get_args(Question)
    if trained is not None:
        if not own:
            raise ValueError("a gate is continued with examples: name a file of them")
        questions = tuple(question for question in questions if any(question in one.answers for one in own))
        prompts = _rehearsed(prompts, questions, len(own), seed)
    prompts += own
    states = states_of(model, prompts, partial(on_progress, "reading"))
    weights, biases, l2_weights = [], [], []
    metrics = GateMetrics(len(prompts), {}, {})
    for number, question in enumerate(get_args(Question)):
        before = None if trained is None else (trained.weight[number], float(trained.bias[number]))
        if before is not None and question not in questions:
            weights.append(before[0])
            biases.append(before[1])
            continue
        asked = [n for n, prompt in enumerate(prompts) if question in prompt.answers]
        known = torch.tensor([prompts[n].answers[question] for n in asked])
        groups = torch.tensor([prompts[n].group for n in asked])
        candidates = _L2_WEIGHTS if before is None else (_L2_WEIGHT_FROM_START,)
        scored = {l2: _held_out(states[asked], known, groups, l2, before) for l2 in candidates}
        l2_weights.append(max(scored, key=lambda one: scored[one][0]))
        metrics.auc[question], metrics.accuracy[question] = scored[l2_weights[-1]]
        weight, bias = fit_logistic_regression(states[asked], known, l2_weights[-1], before)
        weights.append(weight)
        biases.append(bias)
    trained_on = f"{len(prompts)} prompts, seed {seed}, L2 {', '.join(f'{one:g}' for one in l2_weights)}"
    if trained is not None:
        trained_on = f"{trained.metadata.get('trained_on', 'other prompts')}; then {trained_on}"
    return CallGate(torch.stack(weights), torch.tensor(biases), base, {"trained_on": trained_on}), metrics


def _rehearsed(
    prompts: Sequence[LabelledPrompt], questions: Sequence[Question], count: int, seed: int
) -> list[LabelledPrompt]:
    """The prompts of some sets, about this many, that answer some of the questions."""
    useful = [one for one in prompts if one.answers.keys() & set(questions)]
    groups = sorted({one.group for one in useful})
    chosen = set(random.Random(seed).sample(groups, min(len(groups), math.ceil(count * len(groups) / len(useful)))))
    return [one for one in useful if one.group in chosen]


def states_of(model: LoadedModel, prompts: Sequence[LabelledPrompt], on_progress: Callable[[float], None]) -> Tensor:
    """What `last_states` delivers for the prompts: [n, hidden] float32."""
    groups = [(prompt.group, tuple(tool.name for tool in prompt.tools)) for prompt in prompts]
    encoded = [
        model.template.encode(as_read(model, prompt.messages), tools=[declaration(tool) for tool in prompt.tools])
        for prompt in prompts
    ]
    return last_states(model, encoded, groups, on_progress)


def _held_out(
    states: Tensor, known: Tensor, groups: Tensor, l2_weight: float, start: tuple[Tensor, float] | None
) -> tuple[float, float]:
    """AUC and accuracy of what each set's prompts get from weights that were trained without it."""
    odds = torch.zeros(len(states))
    for fold in range(_FOLDS):
        out = groups % _FOLDS == fold
        weight, bias = fit_logistic_regression(states[~out], known[~out], l2_weight, start)
        odds[out] = states[out] @ weight + bias
    measured = measure(odds.sigmoid(), known)
    return measured.auc, measured.accuracy
