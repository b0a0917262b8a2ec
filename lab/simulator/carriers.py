"""The carriers' side of their protocols, strict about what the server sends. Pure: no socket, no clock.

`server.telephony` has the other side. This module shares no code with it, so that a mistake on one side shows on the
other.
"""

from __future__ import annotations

import base64
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from voice.audio.codec import Encoding

Frame = str | bytes


class ProtocolViolation(Exception):
    """The server sent something that the carrier would not accept."""


@dataclass(frozen=True)
class Play:
    """Play this audio after all queued audio. It is in the carrier's encoding."""

    data: bytes


@dataclass(frozen=True)
class Mark:
    """Report when all audio sent so far has been played."""

    name: str


@dataclass(frozen=True)
class Clear:
    """Drop audio that has not been played."""


@dataclass(frozen=True)
class HangUp:
    """End the call."""


@dataclass(frozen=True)
class CalledFunction:
    """The assistant has called a function, with JSON arguments. Only this server reports that, and on request: no
    carrier knows it."""

    name: str
    arguments: str
    output: str


REPORT_FUNCTIONS = {"functions": "report"}
"""The call parameter that asks for it."""

ServerCommand = Play | Mark | Clear | HangUp


class Carrier(ABC):
    """One call at a carrier.

    Args:
        parameters: that the call is set up with.

    Attributes:
        clear_returns_marks: whether the carrier returns pending marks when its buffer is cleared.
    """

    name: ClassVar[str]
    encoding: Encoding = "pcmu"
    rate = 8_000
    clear_returns_marks: ClassVar[bool] = True

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self.parameters = dict(parameters)
        self.stream_id, self.call_id = uuid.uuid4().hex, str(uuid.uuid4())
        self._sequence = self._chunk = 0

    @abstractmethod
    def opening_frames(self) -> list[Frame]:
        """The first messages."""

    @abstractmethod
    def audio(self, data: bytes) -> Frame:
        """A frame with the caller's next 20 ms of audio."""

    @abstractmethod
    def dtmf(self, digit: str) -> Frame:
        """A frame that reports a key press of the caller."""

    @abstractmethod
    def parse(self, frame: Frame) -> ServerCommand | None:
        """Translate a frame of the server. Raises ProtocolViolation."""

    def mark_played(self, mark: str) -> Frame | None:
        """A frame that returns a mark."""
        return None

    def cleared(self) -> Frame | None:
        """A frame that confirms a clear."""
        return None

    def stop(self) -> Frame | None:
        """A frame that reports that the caller hung up."""
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
    _stream_key = "streamSid"

    def opening_frames(self) -> list[Frame]:
        """See `Carrier`."""
        audio_format = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
        start = {
            "accountSid": "AC0", "streamSid": self.stream_id, "callSid": self.call_id, "tracks": ["inbound"],
            "mediaFormat": audio_format, "customParameters": self.parameters,
        }  # fmt: skip
        connected = {"event": "connected", "protocol": "Call", "version": "1.0.0"}
        return [json.dumps(connected), self._numbered("start", start=start, streamSid=self.stream_id)]

    def audio(self, data: bytes) -> Frame:
        """See `Carrier`."""
        return self._numbered("media", media=self._media(data), **{self._stream_key: self.stream_id})

    def dtmf(self, digit: str) -> Frame:
        """See `Carrier`."""
        dtmf = {"track": "inbound_track", "digit": digit}
        return self._numbered("dtmf", dtmf=dtmf, **{self._stream_key: self.stream_id})

    def mark_played(self, mark: str) -> Frame:
        """See `Carrier`."""
        return self._numbered("mark", mark={"name": mark}, **{self._stream_key: self.stream_id})

    def stop(self) -> Frame:
        """See `Carrier`."""
        stop = {"accountSid": "AC0", "callSid": self.call_id}
        return self._numbered("stop", stop=stop, **{self._stream_key: self.stream_id})

    def parse(self, frame: Frame) -> ServerCommand | None:
        """See `Carrier`."""
        message = _parse_object(frame)
        if message.get(self._stream_key) != self.stream_id:
            raise ProtocolViolation(f"a message for another stream: {frame[:80]!r}")
        return _parse_media_mark_or_clear(message)


class Telnyx(Twilio):
    """Media streaming over websockets: Twilio's messages under other names; frames may arrive out of command."""

    name = "telnyx"
    _stream_key = "stream_id"

    def opening_frames(self) -> list[Frame]:
        """See `Carrier`."""
        audio_format = {"encoding": self.encoding.upper(), "sample_rate": 8000, "channels": 1}
        start = {
            "user_id": "u", "call_control_id": f"v3:{self.call_id}", "from": "+15550001", "to": "+15550002",
            "custom_parameters": self.parameters, "media_format": audio_format,
        }  # fmt: skip
        return [
            json.dumps({"event": "connected", "version": "1.0.0"}),
            self._numbered("start", start=start, stream_id=self.stream_id),
        ]

    def parse(self, frame: Frame) -> ServerCommand | None:
        """See `Carrier`."""
        return _parse_media_mark_or_clear(_parse_object(frame))


class Plivo(Twilio):
    """Audio streaming: its marks are called checkpoints, and a clear does not return them."""

    name = "plivo"
    _stream_key = "streamId"
    clear_returns_marks = False

    def opening_frames(self) -> list[Frame]:
        """See `Carrier`."""
        audio_format = {"encoding": "audio/x-mulaw", "sampleRate": 8000}
        start = {
            "callId": self.call_id, "streamId": self.stream_id, "accountId": "MA0", "tracks": ["inbound"],
            "mediaFormat": audio_format,
        }  # fmt: skip
        headers = ";".join(f"{name}={value}" for name, value in self.parameters.items())
        return [self._numbered("start", start=start, extra_headers=headers)]

    def mark_played(self, mark: str) -> Frame:
        """See `Carrier`."""
        return self._numbered("playedStream", streamId=self.stream_id, name=mark)

    def cleared(self) -> Frame:
        """See `Carrier`."""
        return self._numbered("clearedAudio", streamId=self.stream_id)

    def parse(self, frame: Frame) -> ServerCommand | None:
        """See `Carrier`."""
        message = _parse_object(frame)
        match message.get("event"):
            case "playAudio":
                media = message.get("media", {})
                if (media.get("contentType"), media.get("sampleRate")) != ("audio/x-mulaw", 8000):
                    raise ProtocolViolation(f"audio in another format: {frame[:120]!r}")
                return Play(_payload(media))
            case "checkpoint" if message.get("streamId") == self.stream_id:
                return Mark(str(message["name"]))
            case "clearAudio" if message.get("streamId") == self.stream_id:
                return Clear()
        raise ProtocolViolation(f"{frame[:80]!r}")


class Exotel(Twilio):
    """The Voicebot applet: linear audio, in chunks of at least 3,200 bytes."""

    name = "exotel"
    encoding: Encoding = "pcm"
    _stream_key = "stream_sid"

    def opening_frames(self) -> list[Frame]:
        """See `Carrier`."""
        audio_format = {"encoding": "base64", "sample_rate": "8000", "bit_rate": "128kbps"}
        start = {
            "stream_sid": self.stream_id, "call_sid": self.call_id, "account_sid": "a", "from": "0", "to": "1",
            "custom_parameters": self.parameters, "media_format": audio_format,
        }  # fmt: skip
        return [json.dumps({"event": "connected"}), self._numbered("start", start=start, stream_sid=self.stream_id)]

    def parse(self, frame: Frame) -> ServerCommand | None:
        """See `Carrier`."""
        command = super().parse(frame)
        if isinstance(command, Play) and (len(command.data) % 320 or not 3_200 <= len(command.data) <= 100_000):
            raise ProtocolViolation(f"a chunk of {len(command.data)} bytes, which sounds broken")
        return command


class Vonage(Carrier):
    """The websocket endpoint: binary linear audio at 16 kHz."""

    name = "vonage"
    encoding: Encoding = "pcm"
    rate = 16_000
    clear_returns_marks = False

    def opening_frames(self) -> list[Frame]:
        """See `Carrier`."""
        return [json.dumps({"event": "websocket:connected", "content-type": "audio/l16;rate=16000", **self.parameters})]

    def audio(self, data: bytes) -> Frame:
        """See `Carrier`."""
        return data

    def dtmf(self, digit: str) -> Frame:
        """See `Carrier`."""
        return json.dumps({"event": "websocket:dtmf", "digit": digit, "duration": 260})

    def mark_played(self, mark: str) -> Frame:
        """See `Carrier`."""
        return json.dumps({"event": "websocket:notify", "payload": {"mark": mark}})

    def cleared(self) -> Frame:
        """See `Carrier`."""
        return json.dumps({"event": "websocket:cleared"})

    def parse(self, frame: Frame) -> ServerCommand | None:
        """See `Carrier`."""
        if isinstance(frame, bytes):
            if len(frame) != 640:
                raise ProtocolViolation(f"a chunk of {len(frame)} bytes instead of 640")
            return Play(frame)
        message = _parse_object(frame)
        match message.get("action"):
            case "notify":
                return Mark(str(message["payload"]["mark"]))
            case "clear":
                return Clear()
        raise ProtocolViolation(f"{frame[:80]!r}")


class AudioSocket(Carrier):
    """Asterisk over TCP. A frame is type, length and payload; there are no marks and no clear."""

    name = "audiosocket"
    encoding: Encoding = "pcm"

    def opening_frames(self) -> list[Frame]:
        """See `Carrier`. The parameter `uuid` identifies the call."""
        call_uuid = uuid.UUID(self.parameters.get("uuid") or self.call_id)
        return [b"\x01\x00\x10" + call_uuid.bytes]

    def audio(self, data: bytes) -> Frame:
        """See `Carrier`."""
        return b"\x10" + len(data).to_bytes(2, "big") + data

    def dtmf(self, digit: str) -> Frame:
        """See `Carrier`."""
        return b"\x03\x00\x01" + digit.encode("ascii")

    def stop(self) -> Frame:
        """See `Carrier`."""
        return b"\x00\x00\x00"

    def parse(self, frame: Frame) -> ServerCommand | None:
        """See `Carrier`."""
        if frame == b"\x00\x00\x00":
            return HangUp()
        if not isinstance(frame, bytes) or frame[0] != 0x10 or len(frame) != 323:
            raise ProtocolViolation(f"{frame[:20]!r} is not 20 ms of audio")
        return Play(frame[3:])


CARRIERS: dict[str, type[Carrier]] = {
    carrier.name: carrier for carrier in (Twilio, Telnyx, Plivo, Vonage, Exotel, AudioSocket)
}

CarrierName = StrEnum("CarrierName", {name: name for name in CARRIERS})  # type: ignore[misc]
"""A carrier, as an option of a command."""


def parse_called_function(frame: Frame) -> CalledFunction | None:
    """The function call that a frame reports; None for every other frame."""
    if not isinstance(frame, str) or "rejoinder.function" not in frame:
        return None
    message = _parse_object(frame)
    if message.get("event") != "rejoinder.function":
        return None
    return CalledFunction(*(str(message[name]) for name in ("name", "arguments", "output")))


def _parse_object(frame: Frame) -> dict[str, Any]:
    try:
        message = json.loads(frame)
    except ValueError:
        raise ProtocolViolation(f"not JSON: {frame[:80]!r}") from None
    if not isinstance(message, dict):
        raise ProtocolViolation(f"not a JSON object: {frame[:80]!r}")
    return message


def _payload(media: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(media["payload"], validate=True)
    except (KeyError, TypeError, ValueError):
        raise ProtocolViolation("audio that is not base64") from None


def _parse_media_mark_or_clear(message: Mapping[str, Any]) -> ServerCommand:
    match message.get("event"):
        case "media":
            return Play(_payload(message.get("media", {})))
        case "mark":
            return Mark(str(message.get("mark", {}).get("name", "")))
        case "clear":
            return Clear()
    raise ProtocolViolation(f"an unknown event {message.get('event')!r}")
