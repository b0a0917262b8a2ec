"""What `voice` needs of a language model, and all that it may know of it.

`model.engine.Conversation` fits; so does anything else that can answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Message:
    """One thing that was said. `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


class Progress(Protocol):
    """What one step of a reply changed."""

    @property
    def committed(self) -> str:
        """Text that is final now, to be put behind what was committed before."""
        ...

    @property
    def draft(self) -> str:
        """Text that may follow and may still change. Shown, never spoken as final, never remembered."""
        ...

    @property
    def confidence(self) -> tuple[float, ...]:
        """Probability of each token of the draft."""
        ...

    @property
    def step(self) -> int:
        """Denoising steps of this reply so far."""
        ...

    @property
    def tokens(self) -> int:
        """Tokens committed so far."""
        ...

    @property
    def finished(self) -> str | None:
        """Why the reply ended (`stop` or `length`), on its last progress only."""
        ...

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the conversation that the reply answers."""
        ...

    @property
    def cached_tokens(self) -> int:
        """How many of them did not have to be read again."""
        ...


class Brain(Protocol):
    """One conversation's language model."""

    def reply(
        self, messages: Sequence[Message], *, max_tokens: int | None = None, deadline: float | None = None
    ) -> AsyncIterator[Progress]:
        """Answer the conversation. `deadline` (on `time.monotonic`) is when a speakable clause is wanted."""
        ...

    def prepare(self, messages: Sequence[Message]) -> None:
        """Read ahead: called when the user begins to speak, and as their words settle."""
        ...

    async def ends(self, text: str) -> float | None:
        """How likely a user who has said `text` has finished, 0 to 1; None where the model cannot tell."""
        ...

    def rest(self, seconds: float) -> None:
        """Take no step for so long, or go on at once (0): the processor is wanted for sound that somebody waits for."""
        ...

    def cancel(self) -> None:
        """Drop the reply under way, between two steps."""
        ...
