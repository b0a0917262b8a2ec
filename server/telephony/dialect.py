"""The common interface of all carrier protocols: carrier events in, commands and audio out.

A dialect is pure: it translates frames into events and commands into frames. It has no socket and no clock.
"""

from __future__ import annotations

import base64
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic_core import from_json

from voice.audio.codec import TELEPHONE_RATE, Encoding

Frame = str | bytes
"""One message on the wire: text or binary."""

FRAME_MS = 20
"""The usual packet length in telephony, which every carrier sends and accepts."""

MAX_PARAMETER_CHARACTERS = 8192
"""Maximum length of one call parameter; carriers themselves allow far less."""

_WITHHELD = frozenset(
    "+266696687 +7378742833 +86282452253 +8656696 +2562533 "
    "anonymous restricted unknown unavailable blocked private withheld".split()
)
"""What carriers send in place of a number that the caller withholds. Twilio's numbers are words on a telephone's keys,
such as ANONYMOUS."""

_TECHNICAL_NAME = re.compile(r"(?!.*\d{4})[a-zA-Z][\w/.:-]{0,39}")
"""One word without a number of four digits, such as `media`, `websocket:dtmf` or `audio/l16`."""


class BadMessage(Exception):
    """An invalid message. It is ignored and the call continues."""


class BadCall(Exception):
    """A call that cannot continue.

    Args:
        code: the websocket's close code.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class CallStarted:
    """The call's audio begins. `parameters` are what the call was set up with."""

    call_id: str
    caller: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CallerAudio:
    """The caller's audio, in the dialect's encoding. `chunk` is its sequence number where frames may be reordered."""

    data: bytes
    chunk: int | None = None


@dataclass(frozen=True)
class DtmfDigit:
    """The caller pressed a key: `0` to `9`, `*`, `#`, `A` to `D`."""

    digit: str


@dataclass(frozen=True)
class MarkPlayed:
    """All audio before this mark was played, or dropped by a clear."""

    mark: str


@dataclass(frozen=True)
class BufferState:
    """The carrier's buffer is full and the server must stop sending, or it has room again."""

    full: bool


@dataclass(frozen=True)
class CallEnded:
    """The caller, or the carrier, ended the call."""

    reason: str


CarrierEvent = CallStarted | CallerAudio | DtmfDigit | MarkPlayed | BufferState | CallEnded


class Dialect(ABC):
    """One carrier's protocol, for one call.

    Attributes:
        name: the carrier's name on the command line and in the log.
        send_ahead_ms: audio sent ahead of playback: how long the network or this machine may stall without a gap.
        chunk_ms: the smallest chunk of audio that the carrier plays well.
        returns_marks: whether the carrier reports how far it has played.
        has_text_frames: whether there are frames of text.
        encoding: of the audio in both directions; known once the call has started.
        rate: sample rate in Hz of the audio in both directions; known once the call has started.
    """

    name: ClassVar[str]
    send_ahead_ms: ClassVar[int] = 300
    chunk_ms: ClassVar[int] = FRAME_MS
    returns_marks: ClassVar[bool] = True
    has_text_frames: ClassVar[bool] = True

    def __init__(self) -> None:
        self.encoding: Encoding = "pcmu"
        self.rate = TELEPHONE_RATE
        self._started = False

    @abstractmethod
    def parse(self, frame: Frame) -> CarrierEvent | None:
        """Translate a frame of the carrier; None if the frame has no meaning for a call.

        Raises:
            BadMessage: the frame is invalid, or belongs to no stream of this call.
            BadCall: no later frame can be understood.
        """

    def audio(self, data: bytes) -> Frame:
        """A frame of audio for the caller; just the audio if the carrier puts nothing around it."""
        return data

    def mark(self, name: str) -> Frame | None:
        """Ask the carrier to report when all audio sent so far was played."""
        return None

    def clear(self) -> Frame | None:
        """Drop audio that was sent but not played; None if the carrier has no buffer."""
        return None

    def answer(self) -> Frame | None:
        """Answer the call; None if the carrier needs no such command."""
        return None

    def hang_up(self) -> Frame | None:
        """End the call; None if closing the connection ends it."""
        return None

    def _caller_audio(self, data: bytes, chunk: int | None = None) -> CallerAudio:
        """The caller's audio. Raises BadMessage if it ends within a sample."""
        if self.encoding == "pcm" and len(data) % 2:
            raise BadMessage(f"{len(data)} bytes of audio, which are not 16-bit samples")
        return CallerAudio(data, chunk)

    def _begin(self, encoding: Any, rate: Any, encodings: Mapping[str, Encoding], rates: tuple[int, ...]) -> None:
        """The call starts with an audio format. Names of encodings may be written in upper or lower case, and G.711 has
        8 kHz.

        Raises:
            BadMessage: it has started before.
            BadCall: the format is not supported.
        """
        if self._started:
            raise BadMessage("a second start")
        known = {name.lower(): encoding for name, encoding in encodings.items()}
        name = str(encoding).strip().lower()
        hertz = parse_count(rate) or 0
        possible = rates if known.get(name, "pcm") == "pcm" else (TELEPHONE_RATE,)
        if name not in known or hertz not in possible:
            supported = f"{', '.join(encodings)} at {', '.join(map(str, possible))} Hz"
            raise BadCall(f"{self.name} sends {described(encoding)} at {hertz} Hz; supported are {supported}", 1003)
        self.encoding, self.rate, self._started = known[name], hertz, True


def parse_json(frame: Frame) -> dict[str, Any]:
    """The JSON object of a text frame.

    Raises:
        BadCall: it is something else, so the client speaks another protocol. Half of a surrogate pair, which no UTF-8
            can hold, and `Infinity` are no JSON either.
    """
    try:
        message = from_json(frame, allow_inf_nan=False)
    except ValueError:
        raise BadCall(f"this frame is not JSON: {described(frame)}", 1007) from None
    if not isinstance(message, dict):
        raise BadCall(f"a message must be a JSON object, not {described(frame)}", 1007)
    return message


def described(value: object) -> str:
    """What a carrier sent, for an error, which is logged: the name of an event or an encoding; of anything else the
    length only, as it may quote or name the caller."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    text = str(value)
    return repr(text) if _TECHNICAL_NAME.fullmatch(text) else f"{len(text)} characters"


def parse_count(value: Any) -> int | None:
    """A whole number of at most 64 bits, or text that is one; None for anything else, such as 1e999, which JSON can
    hold."""
    try:
        count = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return count if abs(count) < 1 << 63 else None


def parse_dtmf(fields: Mapping[str, Any]) -> DtmfDigit:
    """The key of a DTMF message. Raises BadMessage."""
    digit = str(fields.get("digit", "")).upper()
    if len(digit) != 1 or digit not in "0123456789*#ABCD":
        raise BadMessage(f"a DTMF message with {len(digit)} characters that are not one key")
    return DtmfDigit(digit)


def known_caller(caller: str) -> str:
    """Who calls, as a number or an address; empty if a carrier says in their place that they withhold it."""
    user = caller.rpartition("<")[2].strip(" >").partition("@")[0].rpartition(":")[2]  # of a SIP address, if it is one
    return "" if user.lower() in _WITHHELD else caller


def parse_parameters(value: object) -> dict[str, str]:
    """A call's parameters: the first 64, scalars only, each truncated to MAX_PARAMETER_CHARACTERS."""
    if not isinstance(value, dict):
        return {}
    return {
        str(k): str(v)[:MAX_PARAMETER_CHARACTERS]
        for k, v in list(value.items())[:64]
        if isinstance(v, str | int | float)
    }


def to_base64(data: bytes) -> str:
    """Base64 as text."""
    return base64.b64encode(data).decode("ascii")
