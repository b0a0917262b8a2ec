"""Vonage's websocket endpoint: audio as binary frames, everything else as JSON.

Source: developer.vonage.com/en/voice/voice-api/concepts/websockets. Our marks are its notifications, which it returns
when all audio sent before them has been played.
"""

from __future__ import annotations

import json

from server.telephony.dialect import (
    BadMessage,
    CallEnded,
    CallStarted,
    CarrierEvent,
    Dialect,
    Frame,
    MarkPlayed,
    described,
    parse_dtmf,
    parse_json,
    parse_parameters,
)

_PROTOCOL_FIELDS = ("event", "content-type")
"""Fields of the first message that are not call parameters."""


class Vonage(Dialect):
    """16-bit linear at 8, 16 or 24 kHz. Vonage buffers up to about 60 s; we send far less ahead."""

    name = "vonage"

    def parse(self, frame: Frame) -> CarrierEvent | None:
        if isinstance(frame, bytes):
            if not self._started:
                raise BadMessage("audio before the call began")
            return self._caller_audio(frame)
        message = parse_json(frame)
        match message.get("event"):
            case "websocket:connected":
                return self._start(message)
            case "websocket:dtmf":
                dtmf = message.get("dtmf")
                return parse_dtmf(dtmf if isinstance(dtmf, dict) else message)
            case "websocket:notify":
                payload = message.get("payload")
                return MarkPlayed(str(payload.get("mark", ""))[:100]) if isinstance(payload, dict) else None
            case "websocket:cleared":
                return None
            case "websocket:disconnected":
                return CallEnded("the caller hung up")
            case kind:
                raise BadMessage(f"an unknown event {described(kind)}")

    def _start(self, message: dict[str, object]) -> CallStarted:
        encoding, _, rate = str(message.get("content-type", "")).partition(";rate=")
        self._begin(encoding, rate, {"audio/l16": "pcm"}, (8000, 16000, 24000))
        parameters = parse_parameters({name: value for name, value in message.items() if name not in _PROTOCOL_FIELDS})
        call_id = parameters.get("uuid", parameters.get("call_uuid", ""))
        return CallStarted(call_id, parameters.get("from", ""), parameters)

    def mark(self, name: str) -> Frame:
        return json.dumps({"action": "notify", "payload": {"mark": name}})

    def clear(self) -> Frame:
        return json.dumps({"action": "clear"})
