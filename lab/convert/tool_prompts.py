"""Conversations with tools for a model to respond to: requests for a call, requests that no tool does, and results to
answer from. They come from `tool_prompts.toml`.

No tool and no subject is one of those that measure tool calls.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chat.types import Message, Tool, ToolCall
from model.checkpoint.chat_template import with_noted_outputs
from model.decode.tool_calls import declaration
from model.engine.loader import LoadedModel

_DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_SLOT = re.compile(r"<(\w+)>")
_CALL = re.compile(r"\s*(<tool|[{\[`])")

TOOL_KINDS = ("tool", "no_tool", "result")
"""Kinds of conversations with tools: a request that one of the tools does, one that none does, and a request with its
call and what that returned."""


@dataclass(frozen=True)
class ToolUse:
    """What is known of one tool.

    Attributes:
        does: completes "The assistant can …".
        declaration: in the chat template's form, as conversations declare it.
        says: patterns of what people say to have it called.
        arguments, results: patterns of a call's arguments and of what it returns.
    """

    name: str
    does: str
    declaration: dict[str, Any]
    says: tuple[str, ...]
    arguments: str
    results: tuple[str, ...]


@dataclass(frozen=True)
class ToolSet:
    """The tools of one assistant, and requests that none of them does."""

    tools: tuple[ToolUse, ...]
    others: tuple[str, ...]

    @property
    def declarations(self) -> tuple[dict[str, Any], ...]:
        """Of its tools."""
        return tuple(tool.declaration for tool in self.tools)


def _tool(name: str, entry: Mapping[str, Any]) -> ToolUse:
    properties = {key.rstrip("?"): {"type": kind} for key, kind in entry["parameters"].items()}
    required = [key for key in entry["parameters"] if not key.endswith("?")]
    parameters = {"type": "object", "properties": properties, "required": required}
    does = entry["does"]
    declared = declaration(Tool(name, f"{does[0].upper()}{does[1:]}.", parameters))
    return ToolUse(name, does, declared, tuple(entry["says"]), entry["arguments"], tuple(entry["results"]))


TOOL_SETS = tuple(
    ToolSet(tuple(_tool(name, tool) for name, tool in entry["tools"].items()), tuple(entry["others"]))
    for entry in _DATA["sets"].values()
)
"""All assistants with tools."""


def tool_conversation(kind: str, draw: random.Random) -> tuple[tuple[Message, ...], tuple[dict[str, Any], ...]]:
    """A conversation after its instructions, and the declarations of its tools.

    Args:
        kind: one of `TOOL_KINDS`.
    """
    chosen = draw.choice(TOOL_SETS)
    tool, fill = draw.choice(chosen.tools), _filling(draw)
    if kind == "no_tool":
        return (Message("user", fill(draw.choice(_undone(chosen, draw)))),), chosen.declarations
    request = Message("user", _sentence(fill(draw.choice(tool.says))))
    if kind == "tool":
        return (request,), chosen.declarations
    call = ToolCall("call_1", tool.name, fill(tool.arguments))
    output = Message("tool", fill(draw.choice(tool.results)), tool_call_id=call.id)
    return (request, Message("assistant", "", (call,)), output), chosen.declarations


def _undone(chosen: ToolSet, draw: random.Random) -> Sequence[str]:
    """Patterns of requests that no tool of a set does: near its subject, or what another set's tools do."""
    if draw.random() < 0.5:
        return chosen.others
    other = draw.choice([each for each in TOOL_SETS if each is not chosen])
    return draw.choice(other.tools).says


def _filling(draw: random.Random) -> Callable[[str], str]:
    """Fills patterns in. A slot has the same value each time."""
    values: dict[str, str] = {}

    def value(match: re.Match[str]) -> str:
        return values.setdefault(match[1], draw.choice(_DATA["words"][match[1]]))

    return lambda pattern: _SLOT.sub(value, pattern)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def as_read(model: LoadedModel, messages: Sequence[Message]) -> list[Message]:
    """A conversation as a model reads it: with the outputs of calls as notes, if it was not taught the template's form
    (`LoadedModel.notes_outputs`). A model that has made no call yet is asked for one, of which it writes one token."""
    if not model.template.takes_notes or all(message.role != "tool" for message in messages):
        return list(messages)
    if model.call_habit.start is None:
        request = Message("user", _filling(random.Random(1))(TOOL_SETS[0].tools[0].says[0]))
        ids = model.template.encode([request], tools=TOOL_SETS[0].declarations)
        logits = model.decoder.forward(ids, model.decoder.new_cache(), logits="last")
        model.call_habit.start = int(logits[0].argmax())
    return with_noted_outputs(messages) if model.notes_outputs else list(messages)


def looks_like_call(text: str) -> bool:
    """Whether a response begins like a call or like other code. Conversations allow that only where there is a call."""
    return _CALL.match(text) is not None
