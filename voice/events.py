"""The events that a session emits. The server translates them to the events of the wire protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from agent.language_model import RemoteRequest, Source
from voice.audio.codec import Samples
from voice.history import FunctionCall, HistoryItem, Item
from voice.speech_times import SpeechTimes
from voice.turn_machine import Phase
from voice.turn_metrics import TurnMetrics
from voice.word_alignment import Word

NO_SAMPLES: Samples = np.zeros(0, np.float32)
"""No audio."""


class SessionEvent:
    """What a session reports."""


@dataclass(frozen=True)
class SpeechStarted(SessionEvent):
    """The user started to speak; `audio_start_ms` includes the prefix that is kept."""

    item_id: str
    audio_start_ms: int


@dataclass(frozen=True)
class SpeechStopped(SessionEvent):
    """Silence ended the user's turn; `audio_end_ms` is where the speech ended."""

    item_id: str
    audio_end_ms: int


@dataclass(frozen=True)
class InputCommitted(SessionEvent):
    """The turn's audio is part of the conversation, after `previous_id`; its transcript is not known yet."""

    item: Item
    previous_id: str | None


@dataclass(frozen=True)
class IdleTimeout(SessionEvent):
    """The user has said nothing from `start_ms` to `end_ms` on the audio clock; a response follows."""

    item_id: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True)
class PartialTranscript(SessionEvent):
    """The interim transcript of a turn in progress: `stable` only grows, `unstable` may still change.

    Attributes:
        words: all of it, if the settings ask for captions; the first `num_stable` are stable.
    """

    item_id: str
    stable: str
    unstable: str
    words: tuple[Word, ...] = ()
    num_stable: int = 0


@dataclass(frozen=True)
class FinalTranscript(SessionEvent):
    """The transcript of a turn of `seconds`, and its words if the settings ask for them."""

    item_id: str
    text: str
    seconds: float
    words: tuple[Word, ...] = ()


@dataclass(frozen=True)
class TranscriptionFailed(SessionEvent):
    """A turn could not be transcribed."""

    item_id: str
    reason: str


@dataclass(frozen=True)
class ResponseStarted(SessionEvent):
    """A response is in progress.

    Attributes:
        spoken: whether its message is.
        in_conversation: whether its items become part of the conversation.
        tag: what the client's request carried; None for a response that the client did not request.
    """

    response_id: str
    spoken: bool
    in_conversation: bool = True
    tag: object = None


@dataclass(frozen=True)
class ResponseItemStarted(SessionEvent):
    """A response has a new item, after `previous_id` in the conversation: a message, or a function call whose arguments
    are being generated."""

    response_id: str
    item: Item | FunctionCall
    previous_id: str | None


@dataclass(frozen=True)
class ResponseSources(SessionEvent):
    """The passages of documents that the message of a response is based on, the best first."""

    response_id: str
    item_id: str
    passages: tuple[Source, ...]


@dataclass(frozen=True)
class FunctionCallArguments(SessionEvent):
    """More of the arguments of a function call."""

    response_id: str
    item_id: str
    call_id: str
    text: str


@dataclass(frozen=True)
class FunctionCallDone(SessionEvent):
    """A function call ended: complete, or cancelled before its arguments were."""

    response_id: str
    item: FunctionCall


@dataclass(frozen=True)
class ItemAdded(SessionEvent):
    """The session added a finished item to the conversation, after `previous_id`."""

    item: HistoryItem
    previous_id: str | None


@dataclass(frozen=True)
class ResponseDraft(SessionEvent):
    """The language model made a step: `committed` is final. What it has drafted since may change, and comes in an event
    of its own.

    Attributes:
        confidence: probability of each token of the draft, provided that those before it are right.
        origin: what drafted it.
        denoised: the draft with a sign in place of each token that is still masked; empty if drafts are verified.
    """

    response_id: str
    committed: str
    step: int
    draft: str = ""
    confidence: tuple[float, ...] = ()
    origin: str = ""
    denoised: str = ""


@dataclass(frozen=True)
class WordsSent(SessionEvent):
    """The response is being asked of a language model elsewhere, to which the conversation is sent."""

    response_id: str
    request: RemoteRequest


@dataclass(frozen=True)
class ResponseText(SessionEvent):
    """More final text of the response: the words of the audio that follows, or written text."""

    response_id: str
    item_id: str
    text: str


@dataclass(frozen=True)
class ResponseTimes(SessionEvent):
    """When the words of the audio that follows are spoken, from the start of the response's audio."""

    response_id: str
    item_id: str
    times: SpeechTimes


@dataclass(frozen=True)
class ResponseAudio(SessionEvent):
    """More of the response's audio, [T] float32 at 24 kHz."""

    response_id: str
    item_id: str
    samples: Samples


@dataclass(frozen=True)
class ResponseDone(SessionEvent):
    """The response has ended.

    Attributes:
        item: the message of the response; without an id if the response has no message.
        items: all items of the response, in the order in which they started.
        reason: `turn_detected` or `client_cancelled` if cancelled, `max_output_tokens` if incomplete, an error message
            if failed.
    """

    response_id: str
    item: Item
    items: tuple[Item | FunctionCall, ...]
    status: Literal["completed", "cancelled", "incomplete", "failed"]
    reason: str | None
    metrics: TurnMetrics


@dataclass(frozen=True)
class PhaseChanged(SessionEvent):
    """The turn machine is in another phase."""

    phase: Phase
