"""Work done before the end of a turn is certain. It must leave no trace if the user keeps talking."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from chat.types import Message
from voice.playback import SessionSettings
from voice.response import Response
from voice.turn_metrics import TurnMetrics


@dataclass
class Speculation:
    """A transcript and a response, made on the assumption that the user's turn is over.

    Attributes:
        revision: the turn machine's number for it.
        speech_end_ms: where the speech ended, on the audio clock.
        metrics: the turn's metrics, if the turn is over.
        settings: the settings that the response was started with.
        transcript: the turn's transcription.
        work: decides the endpoint and starts the response.
        response: the speculative response, once it has started.
        messages: the conversation that the response was generated from.
    """

    revision: int
    speech_end_ms: int
    metrics: TurnMetrics
    settings: SessionSettings
    transcript: asyncio.Task[str]
    work: asyncio.Task[None] | None = None
    response: Response | None = None
    messages: list[Message] = field(default_factory=list)

    def cancel(self) -> None:
        """Discard the response. The transcription continues: it may still be needed."""
        if self.work is not None:
            self.work.cancel()
        if self.response is not None:
            self.response.stop("turn_detected")
