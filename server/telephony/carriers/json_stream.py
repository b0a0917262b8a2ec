"""Carriers that stream a call as JSON messages, each with a stream id: Twilio, Telnyx, Plivo, Exotel."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from server.telephony.dialect import (
    BadCall,
    BadMessage,
    CallEnded,
    CallerAudio,
    CallStarted,
    CarrierEvent,
    Dialect,
    Frame,
    MarkPlayed,
    described,
    parse_count,
    parse_dtmf,
    parse_json,
    parse_parameters,
    to_base64,
)
from server.telephony.plivo_headers import read_value
from voice.audio.codec import TELEPHONE_RATE, Encoding


class JSONStreamDialect(Dialect):
    """JSON messages of one stream.

    Attributes:
        stream_key, call_key: the fields of a start message that hold the ids of the stream and of the call.
        format_key, rate_key, parameters_key: its fields for the audio format, the sample rate in that, and the call's
            parameters.
        encodings: by their names in the audio format; the first is the default.
        rates: sample rates in Hz that are supported.
    """

    stream_key: ClassVar[str]
    call_key: ClassVar[str]
    format_key: ClassVar[str] = "media_format"
    rate_key: ClassVar[str] = "sample_rate"
    parameters_key: ClassVar[str] = "custom_parameters"
    encodings: ClassVar[Mapping[str, Encoding]]
    rates: ClassVar[tuple[int, ...]] = (8000,)

    def __init__(self) -> None:
        super().__init__()
        self._stream_id = ""

    def parse(self, frame: Frame) -> CarrierEvent | None:
        message = parse_json(frame)
        kind = message.get("event")
        if kind == "start":
            return self._parse_start(message, _object_field(message, "start"))
        if self._is_outside_stream(message):
            return None
        stream_id = message.get(self.stream_key)
        if stream_id != self._stream_id:
            raise BadMessage(f"{described(kind)} for a stream of another id")
        match kind:
            case "media":
                return self._parse_audio(_object_field(message, "media"))
            case "dtmf":
                return parse_dtmf(_object_field(message, "dtmf"))
            case "stop":
                return CallEnded("the caller hung up")
            case _:
                return self._parse_playback(message)

    def _parse_start(self, message: dict[str, Any], start: dict[str, Any]) -> CallStarted:
        """The call begins: store its stream id and its audio format."""
        audio = start.get(self.format_key)
        audio = audio if isinstance(audio, dict) else {}
        encoding, rate = audio.get("encoding", next(iter(self.encodings))), audio.get(self.rate_key) or TELEPHONE_RATE
        self._begin(encoding, rate, self.encodings, self.rates)
        self._stream_id = str(start.get(self.stream_key, message.get(self.stream_key, "")))
        parameters = parse_parameters(self._call_parameters(message, start))
        caller = str(start.get("from", parameters.get("from", "")))
        return CallStarted(str(start.get(self.call_key, "")), caller, parameters)

    def _call_parameters(self, message: dict[str, Any], start: dict[str, Any]) -> object:
        """The call's parameters, not yet checked."""
        return start.get(self.parameters_key)

    def _is_outside_stream(self, message: dict[str, Any]) -> bool:
        """Whether a message belongs to no stream and can be ignored."""
        return bool(message.get("event") == "connected")

    def audio(self, data: bytes) -> Frame:
        return self._frame("media", media={"payload": to_base64(data)})

    def mark(self, name: str) -> Frame:
        return self._frame("mark", mark={"name": name})

    def clear(self) -> Frame:
        return self._frame("clear")

    def _frame(self, event: str, **fields: Any) -> str:
        """A command for the stream."""
        return json.dumps({"event": event, self.stream_key: self._stream_id, **fields})

    def _parse_playback(self, message: dict[str, Any]) -> CarrierEvent | None:
        """A report about the playback of our audio. Raises BadMessage for anything else."""
        if message.get("event") == "mark":
            return MarkPlayed(str(_object_field(message, "mark").get("name", ""))[:100])
        raise BadMessage(f"an unknown event {described(message.get('event'))}")

    def _parse_audio(self, media: dict[str, Any]) -> CallerAudio | None:
        """The caller's audio: base64 in `payload`, numbered by `chunk`. None for our own, which some carriers send
        back."""
        if media.get("track", "inbound") != "inbound":
            return None
        try:
            data = base64.b64decode(media["payload"], validate=True)
        except (KeyError, TypeError, ValueError):  # of which binascii.Error is one
            raise BadMessage("a media message whose payload is not base64") from None
        return self._caller_audio(data, parse_count(media.get("chunk")))


def _object_field(message: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object inside a message. Raises BadMessage if it is missing."""
    value = message.get(name)
    if not isinstance(value, dict):
        raise BadMessage(f"a message {described(message.get('event'))} without {name!r}")
    return value


class Twilio(JSONStreamDialect):
    """Twilio Media Streams in both directions: 8 kHz µ-law. A clear returns every pending mark. SignalWire and others
    send the same messages.

    Source: twilio.com/docs/voice/media-streams/websocket-messages.
    """

    name = "twilio"
    stream_key, call_key = "streamSid", "callSid"
    format_key, rate_key, parameters_key = "mediaFormat", "sampleRate", "customParameters"
    encodings: ClassVar[Mapping[str, Encoding]] = {"audio/x-mulaw": "pcmu"}


class Telnyx(JSONStreamDialect):
    """Telnyx media streaming in its bidirectional RTP mode: G.711. Audio that we send must use the call's own
    companding law, and frames may arrive out of order.

    Source: developers.telnyx.com/docs/voice/programmable-voice/media-streaming.
    """

    name = "telnyx"
    stream_key, call_key = "stream_id", "call_control_id"
    encodings: ClassVar[Mapping[str, Encoding]] = {"PCMU": "pcmu", "PCMA": "pcma"}

    def _is_outside_stream(self, message: dict[str, Any]) -> bool:
        if message.get("event") == "error":
            payload = message.get("payload")
            title = payload.get("title") if isinstance(payload, dict) else payload
            raise BadCall(f"telnyx reports an error: {described(title)}", 1011)
        return super()._is_outside_stream(message)

    def _frame(self, event: str, **fields: Any) -> str:
        return json.dumps({"event": event, **fields})


class Plivo(JSONStreamDialect):
    """Plivo audio streaming in both directions: µ-law or 16-bit linear. Its checkpoints are our marks.

    Source: plivo.com/docs/voice-agents/audio-streaming/concepts/audio-streaming-reference.
    """

    name = "plivo"
    stream_key, call_key = "streamId", "callId"
    format_key, rate_key = "mediaFormat", "sampleRate"
    encodings: ClassVar[Mapping[str, Encoding]] = {"audio/x-mulaw": "pcmu", "audio/x-l16": "pcm"}
    rates = (8000, 16000)

    def _call_parameters(self, message: dict[str, Any], start: dict[str, Any]) -> object:
        """`a=1;b=2`, or `{a: 1, b: 2}` as in some calls."""
        headers = message.get("extra_headers")
        if isinstance(headers, dict):
            return {name: read_value(value) if isinstance(value, str) else value for name, value in headers.items()}
        if not isinstance(headers, str):
            return headers
        words = headers[:4096].strip("{}").replace(";", ",").split(",")
        pairs = (word.partition("=" if "=" in word else ":") for word in words)
        return {name.strip().removeprefix("X-PH-"): read_value(value.strip()) for name, sep, value in pairs if sep}

    def _parse_playback(self, message: dict[str, Any]) -> CarrierEvent | None:
        match message.get("event"):
            case "playedStream":
                return MarkPlayed(str(message.get("name", ""))[:100])
            case "clearedAudio":
                return None
        return super()._parse_playback(message)

    def audio(self, data: bytes) -> Frame:
        content_type = "audio/x-mulaw" if self.encoding == "pcmu" else "audio/x-l16"
        media = {"contentType": content_type, "sampleRate": self.rate, "payload": to_base64(data)}
        return json.dumps({"event": "playAudio", "media": media})

    def mark(self, name: str) -> Frame:
        return self._frame("checkpoint", name=name)

    def clear(self) -> Frame:
        return self._frame("clearAudio")


class Exotel(JSONStreamDialect):
    """Exotel's Voicebot applet: Twilio's messages under other names, with 16-bit linear audio at 8, 16 or 24 kHz.
    Chunks below 3,200 bytes, 200 ms at 8 kHz, may sound broken, so at least two chunks are sent ahead.

    Source: developer.exotel.com/docs/agentstream/stream-voicebot-applet. The applet has several names for its only
    encoding; its start messages actually contain `base64`.
    """

    name = "exotel"
    stream_key, call_key = "stream_sid", "call_sid"
    encodings: ClassVar[Mapping[str, Encoding]] = {
        "raw/slin": "pcm", "base64": "pcm", "audio/x-l16": "pcm", "audio/l16": "pcm",
    }  # fmt: skip
    rates = (8000, 16000, 24000)
    send_ahead_ms = 600
    chunk_ms = 200

    def _parse_playback(self, message: dict[str, Any]) -> CarrierEvent | None:
        return None if message.get("event") == "clear" else super()._parse_playback(message)
