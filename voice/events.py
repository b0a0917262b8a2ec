"""What a session tells the outside, as it happens. The server turns these into the wire protocol's events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from voice.audio import Samples
from voice.history import Item
from voice.timeline import Timeline
from voice.turn import Phase

NO_SAMPLES: Samples = np.zeros(0, np.float32)
"""Nothing to hear."""


@dataclass(frozen=True)
class SpeechStarted:
    """The user began to speak; `audio_start_ms` includes the prefix that is kept."""

    item_id: str
    audio_start_ms: int


@dataclass(frozen=True)
class SpeechStopped:
    """The user's turn ended with silence; `audio_end_ms` is where the speech ended."""

    item_id: str
    audio_end_ms: int


@dataclass(frozen=True)
class InputCommitted:
    """The turn's audio is part of the conversation, behind `previous_id`; its words are not known yet."""

    item: Item
    previous_id: str | None


@dataclass(frozen=True)
class PartialTranscript:
    """What has been understood of a turn under way."""

    item_id: str
    stable: str
    unstable: str


@dataclass(frozen=True)
class FinalTranscript:
    """What the user said; `seconds` of audio were read for it."""

    item_id: str
    text: str
    seconds: float


@dataclass(frozen=True)
class TranscriptionFailed:
    """A turn could not be transcribed."""

    item_id: str
    reason: str


@dataclass(frozen=True)
class AnswerStarted:
    """An answer is under way in `item`, behind `previous_id`."""

    response_id: str
    item: Item
    previous_id: str | None


@dataclass(frozen=True)
class Drafted:
    """The language model made a step: `committed` is final, `draft` may change."""

    response_id: str
    committed: str
    draft: str
    step: int


@dataclass(frozen=True)
class AnswerText:
    """More of the answer, final: the words of the audio that follows, or written words."""

    response_id: str
    item_id: str
    text: str


@dataclass(frozen=True)
class AnswerAudio:
    """More of the answer's sound, at 24 kHz."""

    response_id: str
    item_id: str
    samples: Samples


@dataclass(frozen=True)
class AnswerDone:
    """No more of this answer comes.

    Attributes:
        reason: `turn_detected` or `client_cancelled` for a cancelled one, `max_output_tokens` for an incomplete one,
            a sentence for a failed one.
    """

    response_id: str
    item: Item
    status: Literal["completed", "cancelled", "incomplete", "failed"]
    reason: str | None
    timeline: Timeline


@dataclass(frozen=True)
class PhaseChanged:
    """The turn machine is in another phase."""

    phase: Phase


SessionEvent = (
    SpeechStarted
    | SpeechStopped
    | InputCommitted
    | PartialTranscript
    | FinalTranscript
    | TranscriptionFailed
    | AnswerStarted
    | Drafted
    | AnswerText
    | AnswerAudio
    | AnswerDone
    | PhaseChanged
)
