"""The carriers' side of their protocols, strict about what they are sent. Pure: no socket, no clock.

`server.phone` has the other side; nothing here is taken from there, so that a mistake on one side is seen on the other.
"""

from __future__ import annotations

import base64
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from voice.audio import Encoding

Frame = str | bytes


class NotUnderstood(Exception):
    """The server sent something that the carrier would not take."""


@dataclass(frozen=True)
class Play:
    """Play this sound behind what waits, in the carrier's encoding."""

    data: bytes


@dataclass(frozen=True)
class Mark:
    """Say when what was sent so far has been played."""

    name: str


@dataclass(frozen=True)
class Clear:
    """Forget what has not been played."""


@dataclass(frozen=True)
class HangUp:
    """End the call."""


Order = Play | Mark | Clear | HangUp


class Carrier(ABC):
    """One call on a carrier's line.

    Args:
        parameters: what the call is set up with.
    """

    name: ClassVar[str]
    encoding: Encoding = "pcmu"
    rate = 8_000
    clear_returns_marks: ClassVar[bool] = True

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self.parameters = dict(parameters)
        self.stream, self.call = uuid.uuid4().hex, str(uuid.uuid4())
        self._sequence = self._chunk = 0

    @abstractmethod
    def opening(self) -> list[Frame]:
        """The first messages."""

    @abstractmethod
    def sound(self, data: bytes) -> Frame:
        """The caller's next 20 ms."""

    @abstractmethod
    def digit(self, digit: str) -> Frame:
        """The caller pressed a key."""

    @abstractmethod
    def take(self, frame: Frame) -> Order | None:
        """What the server wants. Raises NotUnderstood."""

    def played(self, mark: str) -> Frame | None:
        """A mark comes back."""
        return None

    def cleared(self) -> Frame | None:
        """The buffer is empty now."""
        return None

    def stop(self) -> Frame | None:
        """The caller hung up."""
        return None

    def _numbered(self, event: str, **fields: Any) -> str:
        self._sequence += 1
        return json.dumps({"event": event, "sequenceNumber": str(self._sequence), **fields})

    def _media(self, data: bytes) -> dict[str, str]:
        self._chunk += 1
        payload = base64.b64encode(data).decode("ascii")
        return {"track": "inbound", "chunk": str(self._chunk), "timestamp": str(20 * self._chunk), "payload": payload}


class Twilio(Carrier):
    """Media Streams."""

    name = "twilio"
    _id = "streamSid"

    def opening(self) -> list[Frame]:
        """See `Carrier`."""
        form = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
        start = {
            "accountSid": "AC0", "streamSid": self.stream, "callSid": self.call, "tracks": ["inbound"],
            "mediaFormat": form, "customParameters": self.parameters,
        }  # fmt: skip
        connected = {"event": "connected", "protocol": "Call", "version": "1.0.0"}
        return [json.dumps(connected), self._numbered("start", start=start, streamSid=self.stream)]

    def sound(self, data: bytes) -> Frame:
        """See `Carrier`."""
        return self._numbered("media", media=self._media(data), **{self._id: self.stream})

    def digit(self, digit: str) -> Frame:
        """See `Carrier`."""
        dtmf = {"track": "inbound_track", "digit": digit}
        return self._numbered("dtmf", dtmf=dtmf, **{self._id: self.stream})

    def played(self, mark: str) -> Frame:
        """See `Carrier`."""
        return self._numbered("mark", mark={"name": mark}, **{self._id: self.stream})

    def stop(self) -> Frame:
        """See `Carrier`."""
        return self._numbered("stop", stop={"accountSid": "AC0", "callSid": self.call}, **{self._id: self.stream})

    def take(self, frame: Frame) -> Order | None:
        """See `Carrier`."""
        said = _object(frame)
        if said.get(self._id) != self.stream:
            raise NotUnderstood(f"a message for another stream: {frame[:80]!r}")
        return _media_mark_clear(said)


class Telnyx(Twilio):
    """Media streaming over websockets: Twilio's messages with other names, and frames that overtake each other."""

    name = "telnyx"
    _id = "stream_id"

    def opening(self) -> list[Frame]:
        """See `Carrier`."""
        form = {"encoding": self.encoding.upper(), "sample_rate": 8000, "channels": 1}
        start = {
            "user_id": "u", "call_control_id": f"v3:{self.call}", "from": "+15550001", "to": "+15550002",
            "custom_parameters": self.parameters, "media_format": form,
        }  # fmt: skip
        return [
            json.dumps({"event": "connected", "version": "1.0.0"}),
            self._numbered("start", start=start, stream_id=self.stream),
        ]

    def take(self, frame: Frame) -> Order | None:
        """See `Carrier`."""
        return _media_mark_clear(_object(frame))


class Plivo(Twilio):
    """Audio streaming: checkpoints for marks, which a clear does not return."""

    name = "plivo"
    _id = "streamId"
    clear_returns_marks = False

    def opening(self) -> list[Frame]:
        """See `Carrier`."""
        form = {"encoding": "audio/x-mulaw", "sampleRate": 8000}
        start = {
            "callId": self.call, "streamId": self.stream, "accountId": "MA0", "tracks": ["inbound"], "mediaFormat": form
        }  # fmt: skip
        headers = ";".join(f"{name}={value}" for name, value in self.parameters.items())
        return [self._numbered("start", start=start, extra_headers=headers)]

    def played(self, mark: str) -> Frame:
        """See `Carrier`."""
        return self._numbered("playedStream", streamId=self.stream, name=mark)

    def cleared(self) -> Frame:
        """See `Carrier`."""
        return self._numbered("clearedAudio", streamId=self.stream)

    def take(self, frame: Frame) -> Order | None:
        """See `Carrier`."""
        said = _object(frame)
        match said.get("event"):
            case "playAudio":
                media = said.get("media", {})
                if (media.get("contentType"), media.get("sampleRate")) != ("audio/x-mulaw", 8000):
                    raise NotUnderstood(f"sound of another form: {frame[:120]!r}")
                return Play(_payload(media))
            case "checkpoint" if said.get("streamId") == self.stream:
                return Mark(str(said["name"]))
            case "clearAudio" if said.get("streamId") == self.stream:
                return Clear()
        raise NotUnderstood(f"{frame[:80]!r}")


class Exotel(Twilio):
    """The Voicebot applet: linear sound, in pieces of 3,200 bytes at least."""

    name = "exotel"
    encoding: Encoding = "pcm"
    _id = "stream_sid"

    def opening(self) -> list[Frame]:
        """See `Carrier`."""
        form = {"encoding": "base64", "sample_rate": "8000", "bit_rate": "128kbps"}
        start = {
            "stream_sid": self.stream, "call_sid": self.call, "account_sid": "a", "from": "0", "to": "1",
            "custom_parameters": self.parameters, "media_format": form,
        }  # fmt: skip
        return [json.dumps({"event": "connected"}), self._numbered("start", start=start, stream_sid=self.stream)]

    def take(self, frame: Frame) -> Order | None:
        """See `Carrier`."""
        order = super().take(frame)
        if isinstance(order, Play) and (len(order.data) % 320 or not 3_200 <= len(order.data) <= 100_000):
            raise NotUnderstood(f"a piece of {len(order.data)} bytes, which sounds broken")
        return order


class Vonage(Carrier):
    """The websocket endpoint: binary linear sound at 16 kHz."""

    name = "vonage"
    encoding: Encoding = "pcm"
    rate = 16_000
    clear_returns_marks = False

    def opening(self) -> list[Frame]:
        """See `Carrier`."""
        return [json.dumps({"event": "websocket:connected", "content-type": "audio/l16;rate=16000", **self.parameters})]

    def sound(self, data: bytes) -> Frame:
        """See `Carrier`."""
        return data

    def digit(self, digit: str) -> Frame:
        """See `Carrier`."""
        return json.dumps({"event": "websocket:dtmf", "digit": digit, "duration": 260})

    def played(self, mark: str) -> Frame:
        """See `Carrier`."""
        return json.dumps({"event": "websocket:notify", "payload": {"mark": mark}})

    def cleared(self) -> Frame:
        """See `Carrier`."""
        return json.dumps({"event": "websocket:cleared"})

    def take(self, frame: Frame) -> Order | None:
        """See `Carrier`."""
        if isinstance(frame, bytes):
            if len(frame) != 640:
                raise NotUnderstood(f"a piece of {len(frame)} bytes instead of 640")
            return Play(frame)
        said = _object(frame)
        match said.get("action"):
            case "notify":
                return Mark(str(said["payload"]["mark"]))
            case "clear":
                return Clear()
        raise NotUnderstood(f"{frame[:80]!r}")


class AudioSocket(Carrier):
    """Asterisk over TCP. A frame is type, length and payload; nothing is marked and nothing cleared."""

    name = "audiosocket"
    encoding: Encoding = "pcm"

    def opening(self) -> list[Frame]:
        """See `Carrier`. The parameter `uuid` names the call."""
        name = uuid.UUID(self.parameters.get("uuid") or self.call)
        return [b"\x01\x00\x10" + name.bytes]

    def sound(self, data: bytes) -> Frame:
        """See `Carrier`."""
        return b"\x10" + len(data).to_bytes(2, "big") + data

    def digit(self, digit: str) -> Frame:
        """See `Carrier`."""
        return b"\x03\x00\x01" + digit.encode("ascii")

    def stop(self) -> Frame:
        """See `Carrier`."""
        return b"\x00\x00\x00"

    def take(self, frame: Frame) -> Order | None:
        """See `Carrier`."""
        if frame == b"\x00\x00\x00":
            return HangUp()
        if not isinstance(frame, bytes) or frame[0] != 0x10 or len(frame) != 323:
            raise NotUnderstood(f"{frame[:20]!r} is no 20 ms of sound")
        return Play(frame[3:])


CARRIERS: dict[str, type[Carrier]] = {
    carrier.name: carrier for carrier in (Twilio, Telnyx, Plivo, Vonage, Exotel, AudioSocket)
}


def _object(frame: Frame) -> dict[str, Any]:
    try:
        said = json.loads(frame)
    except ValueError:
        raise NotUnderstood(f"no JSON: {frame[:80]!r}") from None
    if not isinstance(said, dict):
        raise NotUnderstood(f"no JSON object: {frame[:80]!r}")
    return said


def _payload(media: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(media["payload"], validate=True)
    except (KeyError, TypeError, ValueError):
        raise NotUnderstood("sound that is no base64") from None


def _media_mark_clear(said: Mapping[str, Any]) -> Order:
    match said.get("event"):
        case "media":
            return Play(_payload(said.get("media", {})))
        case "mark":
            return Mark(str(said.get("mark", {}).get("name", "")))
        case "clear":
            return Clear()
    raise NotUnderstood(f"an unknown event {said.get('event')!r}")
