"""The protocol of a language model, as `voice` uses it.

`model.engine.conversation.Conversation` implements it, and so can any other model.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from chat.progress import Progress
from chat.types import Ask, Tool, Truncation

Grammar: TypeAlias = Any
"""A form that a response must have, in the language model's own terms: it is passed on and never read here."""


@dataclass(frozen=True)
class Source:
    """A passage that a response is based on.

    Attributes:
        title: what the document is called.
        location: where in it: a file, a heading, a page.
        text: the passage.
    """

    title: str
    location: str
    text: str


@dataclass
class RemoteRequest:
    """A request to a language model that runs elsewhere. The planner yields it before it sends anything, and sends
    nothing until its iterator is advanced. It then keeps the figures up to date.

    Attributes:
        host: where the words go.
        leaves_machine: whether that is another machine.
        model: name of the language model there.
        reason: why this response needs it, in a word or two.
        status: `answered` if the response, or this step of it, came from there; `slow` or `failed` if the local model
            took over, or the response ended early; `running` until it is known.
        error: why it failed, a sentence.
        first_token_ms: from the request to the first token.
        input_tokens, output_tokens: as the other side counts them; estimated where it does not.
    """

    host: str
    leaves_machine: bool
    model: str
    reason: str
    status: Literal["running", "answered", "slow", "failed"] = "running"
    error: str = ""
    first_token_ms: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0


class LanguageModel(Protocol):
    """One conversation's language model."""

    def reply(self, ask: Ask) -> AsyncIterator[Progress]:
        """Generate the response: text or function calls."""
        ...

    def prepare(self, ask: Ask) -> None:
        """Read ahead for `reply` and `turn_completion`: called when the user starts to speak, and as their transcript
        becomes stable."""
        ...

    @property
    def recognizes_tasks(self) -> bool:
        """Whether `Ask.task` has an effect."""
        ...

    def check_tools(self, tools: Sequence[Tool]) -> None:
        """Check that calls of these functions can be generated. May take a second the first time.

        Raises:
            ValueError: one of them has a schema that cannot be enforced. An attribute `path` names the place.
        """
        ...

    def check_grammar(self, grammar: Grammar) -> None:
        """Check that responses can be held to a grammar. May take a second the first time.

        Raises:
            ValueError: they cannot. An attribute `path` names the place in the grammar.
        """
        ...

    def limit_context(self, truncation: Truncation) -> None:
        """Choose what happens when the conversation outgrows the context."""
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

    def fork(self) -> LanguageModel:
        """An independent language model that has read what this one has. Its requests do not cancel those of this
        one."""
        ...
