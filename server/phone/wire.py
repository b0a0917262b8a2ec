"""What a phone protocol is translated from and to: the same few things for every carrier.

A dialect is pure: frames of the carrier in, what they mean out, and the other way round. No socket and no clock here.
"""

from __future__ import annotations

import base64
import binascii
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from voice.audio import TELEPHONE_RATE, Encoding

Frame = str | bytes
"""One message on the wire: text or binary."""

FRAME_MS = 20
"""The telephone's own piece of sound, which every carrier sends and takes."""

LONGEST_PARAMETER = 8192
"""Letters of one parameter of a call; carriers themselves allow far less."""


class BadMessage(Exception):
    """A message that cannot be taken; it is left out and the call goes on."""


class BadCall(Exception):
    """A call that cannot go on.

    Args:
        code: the websocket's close code.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Started:
    """The call's sound begins. `parameters` are what the call was set up with."""

    call_id: str
    caller: str = ""
    called: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sound:
    """The caller's sound, in the dialect's encoding; `chunk` counts where frames may overtake each other."""

    data: bytes
    chunk: int | None = None


@dataclass(frozen=True)
class Digit:
    """The caller pressed a key: `0` to `9`, `*`, `#`, `A` to `D`."""

    digit: str


@dataclass(frozen=True)
class Played:
    """All sound before this mark was played, or thrown away by a clear."""

    mark: str


@dataclass(frozen=True)
class Held:
    """The carrier's buffer is full (or has room again): send nothing (or go on)."""

    full: bool


@dataclass(frozen=True)
class Stopped:
    """The caller, or the carrier, ended the call."""

    reason: str


Heard = Started | Sound | Digit | Played | Held | Stopped


class Dialect(ABC):
    """One carrier's protocol, for one call.

    Attributes:
        name: as the command line and the log call it.
        ahead_ms: sound sent ahead of its playing: what a stall of the network or of this machine may last unheard.
        piece_ms: the smallest piece of sound that the carrier plays well.
        marks: whether the carrier says how far it has played.
        encoding, rate: of the sound both ways; known once the call has started.
    """

    name: ClassVar[str]
    ahead_ms: ClassVar[int] = 300
    piece_ms: ClassVar[int] = FRAME_MS
    marks: ClassVar[bool] = True

    def __init__(self) -> None:
        self.encoding: Encoding = "pcmu"
        self.rate = TELEPHONE_RATE

    @abstractmethod
    def take(self, frame: Frame) -> Heard | None:
        """What a frame of the carrier says; None when it says nothing that matters.

        Raises:
            BadMessage: the frame makes no sense, or belongs to no stream of this call.
            BadCall: nothing after it can be understood.
        """

    @abstractmethod
    def sound(self, data: bytes) -> Frame:
        """Sound for the caller."""

    def mark(self, name: str) -> Frame | None:
        """Ask to be told when the sound so far was played."""
        return None

    def clear(self) -> Frame | None:
        """Throw away what was sent and not played; None where the carrier keeps no buffer."""
        return None

    def answer(self) -> Frame | None:
        """Take the call, where that has to be said."""
        return None

    def hang_up(self) -> Frame | None:
        """End the call, where closing the connection does not."""
        return None

    def _sound_is(self, encoding: Any, rate: Any, known: Mapping[str, Encoding], rates: tuple[int, ...]) -> None:
        """Note the sound's form. Raises BadCall for one that is not understood."""
        try:
            hertz = int(rate)
        except (TypeError, ValueError):
            hertz = 0
        if str(encoding) not in known or hertz not in rates:
            forms = f"{', '.join(known)} at {', '.join(map(str, rates))} Hz"
            raise BadCall(f"{self.name} sends {str(encoding)[:40]!r} at {str(rate)[:10]} Hz; it may be {forms}", 1003)
        self.encoding, self.rate = known[str(encoding)], hertz


def said(frame: Frame) -> dict[str, Any]:
    """The JSON object of a text frame.

    Raises:
        BadCall: it is something else; who sends that speaks another protocol.
    """
    try:
        message = json.loads(frame)
    except (ValueError, RecursionError):
        raise BadCall(f"this frame is not JSON: {frame[:60]!r}", 1007) from None
    if not isinstance(message, dict):
        raise BadCall(f"a message must be a JSON object, not {frame[:60]!r}", 1007)
    return message


def part(message: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object inside a message. Raises BadMessage where there is none."""
    inner = message.get(name)
    if not isinstance(inner, dict):
        raise BadMessage(f"a message {str(message.get('event'))[:40]!r} without {name!r}")
    return inner


def sound_of(media: Mapping[str, Any]) -> Sound:
    """The sound of a media message: base64 in `payload`, counted by `chunk`. Raises BadMessage."""
    try:
        data = base64.b64decode(media["payload"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise BadMessage("a media message whose payload is no base64") from None
    try:
        return Sound(data, int(media["chunk"]))
    except (KeyError, TypeError, ValueError):
        return Sound(data)


def digit_of(inner: Mapping[str, Any]) -> Digit:
    """The key of a DTMF message. Raises BadMessage."""
    digit = str(inner.get("digit", "")).upper()
    if len(digit) != 1 or digit not in "0123456789*#ABCD":
        raise BadMessage(f"no key of a telephone: {digit[:20]!r}")
    return Digit(digit)


def mark_of(message: Mapping[str, Any], name: str = "mark") -> Played:
    """The name of a mark that came back. Raises BadMessage."""
    return Played(str(part(message, name).get("name", ""))[:100])


def parameters_of(given: object) -> dict[str, str]:
    """Parameters of a call, as far as they are text of bearable length."""
    if not isinstance(given, dict):
        return {}
    return {str(k): str(v)[:LONGEST_PARAMETER] for k, v in list(given.items())[:64] if isinstance(v, str | int | float)}


def base64_text(data: bytes) -> str:
    """Base64 as text."""
    return base64.b64encode(data).decode("ascii")
