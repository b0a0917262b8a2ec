"""The protocol of a language model, as `voice` uses it.

`model.engine.conversation.Conversation` implements it, and so can any other model.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol, TypeAlias

from chat.types import Ask, Tool, ToolCallDelta, Truncation

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
        """Probability of each token of the draft, provided that those before it are right."""
        ...

    @property
    def draft_ends(self) -> tuple[int, ...]:
        """Where the text of each token ends in the draft."""
        ...

    @property
    def draft_origin(self) -> str:
        """What drafted it."""
        ...

    @property
    def drafts_shown(self) -> int:
        """Draft tokens of this response that were reported so far."""
        ...

    @property
    def drafts_kept(self) -> int:
        """Those of them that became final."""
        ...

    @property
    def denoised(self) -> str:
        """The draft with a sign in place of each token that is still masked; empty if drafts are verified."""
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
        """Why the response ended (`stop`, `length`, `tool_calls`, or the kind of request of `Ask.task` and
        `Ask.verdicts`); set on its last progress only."""
        ...

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        ...

    @property
    def cached_tokens(self) -> int:
        """How many of the prompt's tokens were in the cache."""
        ...

    @property
    def tool_calls(self) -> Sequence[ToolCallDelta]:
        """What this step added to function calls. Their text is not part of `committed`."""
        ...


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


@dataclass(frozen=True)
class TextProgress:
    """`Progress` whose text is not, or not as it is, what a language model of this machine wrote."""

    committed: str = ""
    finished: str | None = None
    tool_calls: Sequence[ToolCallDelta] = ()
    draft: str = ""
    confidence: tuple[float, ...] = ()
    draft_ends: tuple[int, ...] = ()
    draft_origin: str = ""
    drafts_shown: int = 0
    drafts_kept: int = 0
    denoised: str = ""
    step: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0

    @staticmethod
    def of(progress: Progress, committed: str, **changes: Any) -> TextProgress:
        """The same progress with other text, whose draft nobody has read.

        Args:
            changes: other fields that differ.
        """
        kept = {one.name: getattr(progress, one.name) for one in fields(TextProgress) if one.name not in _OF_TEXT}
        return TextProgress(committed, **{**kept, **changes})


_OF_TEXT = ("committed", "draft", "confidence", "draft_ends", "draft_origin", "denoised")
"""What `TextProgress.of` does not take from the other progress."""


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
