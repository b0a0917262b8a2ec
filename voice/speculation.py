"""What is made ahead of the end of a turn, and must leave no trace when the user goes on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from voice.answer import Answer
from voice.brain import Message
from voice.speaking import Settings
from voice.timeline import Timeline


@dataclass
class Speculation:
    """What is made on the guess that the user's turn is over.

    Attributes:
        revision, at_ms: as the turn machine counts them; where the speech ended.
        timeline: of the turn, if the guess was right.
        settings: that the answer was begun with.
        transcript: what was said.
        assumed: the conversation that the answer answers.
    """

    revision: int
    at_ms: int
    timeline: Timeline
    settings: Settings
    transcript: asyncio.Task[str]
    work: asyncio.Task[None] | None = None
    answer: Answer | None = None
    assumed: list[Message] = field(default_factory=list)

    def drop(self) -> None:
        """Nobody will hear of it; the transcript may still be wanted."""
        if self.work is not None:
            self.work.cancel()
        if self.answer is not None:
            self.answer.stop("turn_detected")
