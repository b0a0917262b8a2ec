"""The messages, tools and options of a request to a language model. Plain values: the language model checks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class ToolCall:
    """A complete function call: `arguments` is the JSON text of an object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Message:
    """One message of a conversation.

    Attributes:
        role: `system`, `user`, `assistant` or `tool`.
        content: the text; of a `tool` message, what the function returned.
        tool_calls: the calls that an assistant message ends with.
        tool_call_id: which call a `tool` message belongs to.
        whole: all that the user said, where `content` is only the part of it that is asked for now.
    """

    role: str
    content: str
    tool_calls: Sequence[ToolCall] = ()
    tool_call_id: str | None = None
    whole: str | None = None


@dataclass(frozen=True)
class Tool:
    """A function that the language model may call. `parameters` is the JSON schema of its arguments, an object."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


@dataclass(frozen=True)
class NamedTool:
    """A tool choice: this function must be called."""

    name: str


ToolChoice = Literal["auto", "none", "required"] | NamedTool
"""Whether a response may, must not or must call functions."""


@dataclass(frozen=True)
class OfferedTools:
    """The functions that one response may call, of those that the prompt declares.

    Attributes:
        expected: whether a call is likely, by what the user said.
        acts: whether one of them does more than look something up.
    """

    names: tuple[str, ...]
    expected: bool = False
    acts: bool = False


@dataclass(frozen=True)
class ToolCallDelta:
    """More of a function call that is being generated.

    Attributes:
        index: number of the call in its response, from 0.
        name: the function's name, complete from the first delta on.
        arguments: text to append to the arguments; may be empty.
        done: whether the arguments are complete: the JSON text of an object that matches the function's schema.
    """

    index: int
    name: str
    arguments: str
    done: bool


Effort = Literal["instant", "low", "medium", "high"]
"""How much work goes into a response."""


@dataclass(frozen=True)
class Truncation:
    """What happens when a conversation outgrows the context.

    Attributes:
        keep_all: that is an error; otherwise the oldest messages are dropped.
        retention_ratio: share of the messages that remain when some are dropped, 0 to 1; None for the model's own.
        max_tokens: length of the conversation after the instructions from which messages are dropped; None for what
            the context holds.
    """

    keep_all: bool = False
    retention_ratio: float | None = None
    max_tokens: int | None = None


@dataclass(frozen=True)
class Opening:
    """A grammar: text that begins with one of these texts, which the model chooses, and goes on freely. It contains no
    call."""

    options: tuple[str, ...]
