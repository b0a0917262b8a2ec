"""The protocol of a language model, as `voice` uses it.

`model.engine.conversation.Conversation` implements it, and so can any other model.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Message:
    """One message of a conversation. `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


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
        """Why the response ended (`stop` or `length`); set on its last progress only."""
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
        self, messages: Sequence[Message], *, max_tokens: int | None = None, deadline: float | None = None
    ) -> AsyncIterator[Progress]:
        """Generate the response. `deadline` (on `time.monotonic`) is when the first speakable clause is needed."""
        ...

    def prepare(self, messages: Sequence[Message]) -> None:
        """Read ahead for `reply` and `turn_completion`: called when the user starts to speak, and as their transcript
        becomes stable."""
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
