"""The cases of `rejoinder bench tools`: what the user says, the tools on offer, and the calls that are right.

A set has tools, single requests (`cases`) and, if it has several tools, `conversations`. A request without `calls`
needs none. In a conversation, an entry without `say` is another step of the same turn; `output` is what its calls
return, and `answer` what the assistant says then. Names of parameters and arguments that end with `?` are optional.

A set belongs to one half, so that the tools of the half that figures are reported of are unseen in the other.
"""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from chat.types import Message, Tool, ToolCall
from lab.bench.call_matching import ExpectedCall, example

Half = Literal["tuning", "held-out"]

CATEGORIES = ("simple", "multiple", "parallel", "irrelevance", "conversation", "talk")
"""BFCL's categories of single requests (one tool on offer; several; several calls needed; none needed), conversations,
and ordinary talk that must not be declined."""

_SPLIT_SEED = 19
"""Chosen before any model was asked."""


@dataclass(frozen=True)
class Decision:
    """One point at which the model responds: `expected` are the right calls after `messages`, none for text."""

    messages: tuple[Message, ...]
    expected: tuple[ExpectedCall, ...]


@dataclass(frozen=True)
class ToolCase:
    """One case, which is right if all of its decisions are.

    Attributes:
        name: the set and the number in it, such as `bank-3`.
    """

    name: str
    category: str
    half: Half
    tools: tuple[Tool, ...]
    decisions: tuple[Decision, ...]


def load_cases() -> list[ToolCase]:
    """All cases, those with the same tools together. Raises ValueError if one is not valid."""
    sets = {**_load("one_tool.toml"), **_load("several_tools.toml")}
    halves = _halves([name for name in sets if len(sets[name]["tools"]) == 1])
    halves |= _halves([name for name in sets if len(sets[name]["tools"]) > 1])
    requests = _load("talk.toml")["requests"]
    names = list(sets)
    talk = {names[number * len(names) // len(requests)]: request for number, request in enumerate(requests)}
    cases = []
    for name, entry in sets.items():
        tools = tuple(_tool(tool, fields) for tool, fields in entry["tools"].items())
        for number, (category, decisions) in enumerate(_cases(name, entry, talk.get(name)), 1):
            cases.append(ToolCase(f"{name}-{number}", category, halves[name], tools, decisions))
    return cases


def select(half: Half | Literal["all"], categories: Sequence[str] = ()) -> list[ToolCase]:
    """The cases of one half or of all, and of these categories only if any are given.

    Raises:
        ValueError: there is no such category.
    """
    if unknown := [category for category in categories if category not in CATEGORIES]:
        raise ValueError(f"there is no category {unknown[0]!r}: choose from {', '.join(CATEGORIES)}")
    return [
        case for case in load_cases() if half in ("all", case.half) and (not categories or case.category in categories)
    ]


def all_tools(cases: Sequence[ToolCase]) -> tuple[Tool, ...]:
    """Every tool of these cases."""
    return tuple({tool.name: tool for case in cases for tool in case.tools}.values())


def _load(file: str) -> dict[str, Any]:
    return tomllib.loads(resources.files("lab.bench").joinpath("cases", file).read_text(encoding="utf-8"))


def _halves(names: list[str]) -> dict[str, Half]:
    shuffled = random.Random(_SPLIT_SEED).sample(names, len(names))
    return {name: "tuning" if number < len(names) // 2 else "held-out" for number, name in enumerate(shuffled)}


def _tool(name: str, fields: Mapping[str, Any]) -> Tool:
    parameters = {key.rstrip("?"): schema for key, schema in fields["parameters"].items()}
    required = [key for key in fields["parameters"] if not key.endswith("?")]
    schema = {"type": "object", "properties": parameters, "required": required, "additionalProperties": False}
    return Tool(name, fields["description"], schema)


def _cases(name: str, entry: Mapping[str, Any], talk: str | None) -> Iterator[tuple[str, tuple[Decision, ...]]]:
    """Category and decisions of each case of a set."""
    try:
        for case in entry["cases"]:
            expected = _expected(case)
            one = "simple" if len(entry["tools"]) == 1 else "multiple"
            category = ("irrelevance", one, "parallel")[min(2, len(expected))]
            yield category, (Decision((Message("user", case["say"]),), expected),)
        for conversation in entry.get("conversations", ()):
            yield "conversation", tuple(_decisions(conversation))
        if talk is not None:
            yield "talk", (Decision((Message("user", talk),), ()),)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a case of {name} is not valid: {error!r}") from error


def _expected(entry: Mapping[str, Any]) -> tuple[ExpectedCall, ...]:
    return tuple(ExpectedCall(name, arguments) for call in entry.get("calls", ()) for name, arguments in call.items())


def _decisions(conversation: Sequence[Mapping[str, Any]]) -> Iterator[Decision]:
    """The decisions of a conversation, each after what would have been right before it."""
    history: list[Message] = []
    for number, entry in enumerate(conversation):
        if "say" in entry:
            history.append(Message("user", entry["say"]))
        expected = _expected(entry)
        if expected:
            yield Decision(tuple(history), expected)
            calls = [
                ToolCall(f"call_{number}_{n}", call.name, json.dumps(example(call))) for n, call in enumerate(expected)
            ]
            history.append(Message("assistant", "", tuple(calls)))
            history += [Message("tool", entry["output"], tool_call_id=call.id) for call in calls]
        if "answer" in entry:
            yield Decision(tuple(history), ())
            history.append(Message("assistant", entry["answer"]))
