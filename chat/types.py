"""The messages, tools and options of a request to a language model. Plain values: the language model checks them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args


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
    """

    role: str
    content: str
    tool_calls: Sequence[ToolCall] = ()
    tool_call_id: str | None = None


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


@dataclass(frozen=True)
class Lark:
    """Text that a context-free grammar in llguidance's variant of Lark's syntax describes. The rule `start` is the
    first."""

    source: str


def lark_string(text: str) -> str:
    """Text as a string literal of a Lark grammar."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


Handed = Literal["emergency", "danger", "dismissal"]
"""Kinds of requests that a response may leave to the planner: see `Ask.verdicts`."""

HandedOver = Literal["task", Handed]
"""Kinds of requests at which a response may end at once, for others to answer: see `Ask.task` and `Ask.verdicts`."""

HANDED_OVER: frozenset[str] = frozenset(get_args(HandedOver))


@dataclass(frozen=True)
class Ask:
    """One request to a language model: to respond to a conversation.

    Attributes:
        messages: the conversation, instructions first.
        tools: functions that the prompt declares.
        tool_choice: whether the response is a call of one; `auto` lets the language model decide.
        parallel_tool_calls: whether the response may make more than one call.
        max_tool_calls: how many it may make in that case, at least one; the language model's own limit if None.
        grammar: what its text must follow, in the language model's own terms; None for any text.
        max_tokens: maximum length of the response; what the context leaves if None.
        deadline: when the first speakable clause is needed, on `time.monotonic`.
        effort: how much work to put into it; the language model's own measure if None.
        max_steps: maximum denoising steps of a block, in place of the effort's own.
        sampling: how tokens are chosen, in the language model's own terms; its own if None.
        variant: 0, or the number of a random variant, the same each time: whatever the sampling, it is random enough
            that variants differ.
        top_log_probabilities: report the log probability of each token, and those of this many most likely ones.
        stop: nothing is drafted after any of these texts. Whoever asks leaves the iterator there.
        prediction: what the response will resemble, such as the text that it rewrites. The response does not depend
            on it, only how quickly it is generated.
        spoken: the text is said aloud, so it begins with a word.
        assistant: the user talks to an assistant, aloud or in writing, and mostly wants it to use the functions it has.
        task: whether what the user said is for the assistant's functions. `maybe`: if the language model recognizes
            that it is, the response ends at once, with no text and `finished` = `task`. `no`: it is not, though it may
            look so. Empty: there is no function for it.
        verdicts: other kinds of requests at which the response ends in the same way, if the language model recognizes
            them: `emergency`, something dangerous that is happening, `danger`, an everyday question to which a wrong
            answer could hurt somebody, and `dismissal`, the wish that the assistant be silent.
    """

    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = False
    max_tool_calls: int | None = None
    grammar: Any = None
    max_tokens: int | None = None
    deadline: float | None = None
    effort: Effort | None = None
    max_steps: int | None = None
    sampling: Any = None
    variant: int = 0
    top_log_probabilities: int | None = None
    stop: Sequence[str] = ()
    prediction: str = ""
    spoken: bool = False
    assistant: bool = False
    task: Literal["", "maybe", "no"] = ""
    verdicts: frozenset[Handed] = frozenset()
