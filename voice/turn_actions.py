"""What the turn machine wants done. `voice.session` carries it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StopReason = Literal["turn_detected", "client_cancelled"]


class Action:
    """What is to be done."""


@dataclass(frozen=True)
class BeginTurn(Action):
    """The user started to speak at `at_ms`; `turn` is the turn's number."""

    turn: int
    at_ms: int


@dataclass(frozen=True)
class StartSpeculation(Action):
    """The user's turn may be over: the last speech ended at `at_ms`. Start a response and buffer its output."""

    revision: int
    at_ms: int


@dataclass(frozen=True)
class CancelSpeculation(Action):
    """Discard the speculative response: the user resumed speaking at `resumed_ms`, or (None) the client committed or
    cleared the audio."""

    resumed_ms: int | None = None


@dataclass(frozen=True)
class EndTurn(Action):
    """The user's turn is over; the last speech ended at `at_ms`. Transcribe it, unless the active speculation has.

    Attributes:
        manual: the client ended the turn (push-to-talk), not silence.
    """

    turn: int
    at_ms: int
    manual: bool = False


@dataclass(frozen=True)
class DropTurn(Action):
    """Discard the audio of the turn in progress."""


@dataclass(frozen=True)
class CommitSilence(Action):
    """Nobody has spoken from `start_ms` to `end_ms`, since the last response: the silence is the user's turn."""

    start_ms: int
    end_ms: int


@dataclass(frozen=True)
class StartResponse(Action):
    """Respond to the conversation as it stands."""


@dataclass(frozen=True)
class PauseResponse(Action):
    """Fall silent at once; the response may resume."""


@dataclass(frozen=True)
class ResumeResponse(Action):
    """The interruption was not a real one: resume where the response was paused."""


@dataclass(frozen=True)
class StopResponse(Action):
    """Fall silent at once and abandon the response, a paused one included."""

    reason: StopReason
