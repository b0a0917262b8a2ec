"""The protocol of a language model, as `voice` uses it.

`model.engine.conversation.Conversation` implements it, and so can any other model.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol


@dataclass(frozen=True)
class Tool:
    """A function that the model may call.

    Attributes:
        parameters: JSON Schema of its arguments, which are one object.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


@dataclass(frozen=True)
class NamedTool:
    """The choice of one function, which must be called."""

    name: str


ToolChoice = Literal["auto", "none", "required"] | NamedTool
"""Whether a response calls a function."""


@dataclass(frozen=True)
class ToolCall:
    """A completed call of a function. `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Message:
    """One message of a conversation.

    Attributes:
        role: `system`, `user`, `assistant` or `tool`.
        content: the text; of a tool, the output of the call `tool_call_id`.
        tool_calls: calls that an assistant's message makes after its text.
    """

    role: str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class ToolCallDelta(Protocol):
    """A new piece of a tool call."""

    @property
    def index(self) -> int:
        """Which call of the response, from 0."""
        ...

    @property
    def name(self) -> str:
        """The function's name."""
        ...

    @property
    def arguments(self) -> str:
        """Final JSON text, to append to the arguments before."""
        ...

    @property
    def done(self) -> bool:
        """Whether the call is complete. Its arguments match their schema then, and it may be run."""
        ...


class Progress(Protocol):
    """What one step of the generation changed."""

    @property
    def committed(self) -> str:
        """New final text, to append to the text committed before."""
        ...

    @property
    def draft(self) -> str:
        """Text that may follow and may still change. It is shown, but never spoken as final and never remembered."""
        ...

    @property
    def confidence(self) -> tuple[float, ...]:
        """Probability of each token of the draft."""
        ...

    @property
    def step(self) -> int:
        """Denoising steps of this response so far."""
        ...

    @property
    def tokens(self) -> int:
        """Tokens committed so far."""
        ...

    @property
    def finished(self) -> str | None:
        """Why the response ended (`stop`, `length`, or `tool_calls` if it made any); set on its last progress only."""
        ...

    @property
    def tool_calls(self) -> tuple[ToolCallDelta, ...]:
        """New pieces of tool calls."""
        ...

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        ...

    @property
    def cached_tokens(self) -> int:
        """How many of the prompt's tokens were in the cache."""
        ...


class LanguageModel(Protocol):
    """One conversation's language model."""

    def reply(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int | None = None,
        deadline: float | None = None,
        tools: Sequence[Tool] = (),
        tool_choice: ToolChoice = "auto",
        parallel_tool_calls: bool = False,
    ) -> AsyncIterator[Progress]:
        """Generate the response: text, or calls of `tools`, or text and then calls. `deadline` (on `time.monotonic`) is
        when the first speakable clause is needed."""
        ...

    def prepare(
        self, messages: Sequence[Message], *, tools: Sequence[Tool] = (), tool_choice: ToolChoice = "auto"
    ) -> None:
        """Read ahead for `reply` and `turn_completion`: called when the user starts to speak, and as their transcript
        becomes stable. `tools` are those that `reply` will get."""
        ...

    def check_tools(self, tools: Sequence[Tool]) -> None:
        """Check that calls of these tools can be made.

        Raises:
            ValueError: a tool's parameters are not a schema that can be enforced. Its `path` says where.
        """
        ...

    async def turn_completion(self, text: str) -> float | None:
        """Probability (0 to 1) that a user who has said `text` has finished; None if the model cannot tell."""
        ...

    def pause(self, seconds: float) -> None:
        """Run no step for `seconds`, or resume now (0): synthesis that the user waits for needs the processor."""
        ...

    def cancel(self) -> None:
        """Cancel the current response, between two steps."""
        ...
