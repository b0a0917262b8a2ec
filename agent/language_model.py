"""The protocol of a language model, as `voice` uses it.

`model.engine.conversation.Conversation` implements it, and so can any other model.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol, TypeAlias

from chat.types import Effort, Message, OfferedTools, Tool, ToolCallDelta, ToolChoice, Truncation

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
        """Why the response ended (`stop`, `length` or `tool_calls`); set on its last progress only."""
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
    """A request to a language model that runs elsewhere. `LanguageModel.reply` yields it before it sends anything, and
    sends nothing until its iterator is advanced. It then keeps the figures up to date.

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
class SourcedProgress:
    """`Progress` of a response that is based on documents.

    Attributes:
        sources: the passages, the best first; in the first progress, which has no text.
    """

    committed: str = ""
    sources: tuple[Source, ...] = ()
    draft: str = ""
    confidence: tuple[float, ...] = ()
    draft_ends: tuple[int, ...] = ()
    draft_origin: str = ""
    drafts_shown: int = 0
    drafts_kept: int = 0
    denoised: str = ""
    step: int = 0
    tokens: int = 0
    finished: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tool_calls: Sequence[ToolCallDelta] = ()

    @staticmethod
    def of(progress: Progress, committed: str) -> SourcedProgress:
        """The same progress with other text."""
        kept = {one.name: getattr(progress, one.name) for one in fields(SourcedProgress) if one.name not in _OWN}
        return SourcedProgress(committed, **kept)


_OWN = ("committed", "sources")
"""What `SourcedProgress.of` does not take from the other progress."""


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
        offered: OfferedTools | None = None,
        parallel_tool_calls: bool = False,
        effort: Effort | None = None,
        grammar: Grammar | None = None,
    ) -> AsyncIterator[Progress | RemoteRequest]:
        """Generate the response: text or function calls. Before words are sent elsewhere, yields where.

        Args:
            deadline: when the first speakable clause is needed, on `time.monotonic`.
            tools: the functions that the prompt declares.
            offered: those that it may call; None for all. They may change from one response to the next, and the prompt
                stays the same.
            parallel_tool_calls: whether it may make more than one call.
            effort: how much work to put into it; the model's own measure if None.
            grammar: what its text must follow; None for any text.
        """
        ...

    def prepare(
        self, messages: Sequence[Message], *, tools: Sequence[Tool] = (), tool_choice: ToolChoice = "auto"
    ) -> None:
        """Read ahead for `reply` and `turn_completion`: called when the user starts to speak, and as their transcript
        becomes stable."""
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


class LanguageModelWrapper:
    """What a `LanguageModel` in front of another one passes on. Subclasses define `reply`, `prepare` and `fork`."""

    def __init__(self, language_model: LanguageModel) -> None:
        self._model = language_model

    def check_tools(self, tools: Sequence[Tool]) -> None:
        """See `LanguageModel`."""
        self._model.check_tools(tools)

    def check_grammar(self, grammar: Grammar) -> None:
        """See `LanguageModel`."""
        self._model.check_grammar(grammar)

    def limit_context(self, truncation: Truncation) -> None:
        """See `LanguageModel`."""
        self._model.limit_context(truncation)

    async def turn_completion(self, text: str) -> float | None:
        """See `LanguageModel`."""
        return await self._model.turn_completion(text)

    def pause(self, seconds: float) -> None:
        """See `LanguageModel`."""
        self._model.pause(seconds)

    def cancel(self) -> None:
        """See `LanguageModel`."""
        self._model.cancel()
