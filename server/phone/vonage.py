"""Vonage's websocket endpoint: sound as binary frames, everything else as JSON.

Source: developer.vonage.com/en/voice/voice-api/concepts/websockets. Its marks are notifications that come back when
what was sent before them has been played.
"""

from __future__ import annotations

import json

from server.phone.wire import (
    BadCall,
    BadMessage,
    Dialect,
    Frame,
    Heard,
    Played,
    Sound,
    Started,
    Stopped,
    digit_of,
    parameters_of,
    said,
)

_OUR_OWN = ("event", "content-type")


class Vonage(Dialect):
    """16-bit linear at 8, 16 or 24 kHz. It buffers some 60 s at most; we send far less ahead."""

    name = "vonage"

    def __init__(self) -> None:
        super().__init__()
        self.encoding, self.rate = "pcm", 16_000
        self._started = False

    def take(self, frame: Frame) -> Heard | None:
        """See `Dialect.take`."""
        if isinstance(frame, bytes):
            if not self._started:
                raise BadMessage("sound before the call began")
            if len(frame) % 2:
                raise BadMessage(f"{len(frame)} bytes of sound, which are not 16-bit samples")
            return Sound(frame)
        message = said(frame)
        match message.get("event"):
            case "websocket:connected":
                return self._start(message)
            case "websocket:dtmf":
                inner = message.get("dtmf")
                return digit_of(inner if isinstance(inner, dict) else message)
            case "websocket:notify":
                payload = message.get("payload")
                return Played(str(payload.get("mark", ""))[:100]) if isinstance(payload, dict) else None
            case "websocket:cleared":
                return None
            case "websocket:disconnected":
                return Stopped("the caller hung up")
            case kind:
                raise BadMessage(f"an unknown event {str(kind)[:40]!r}")

    def _start(self, message: dict[str, object]) -> Started:
        if self._started:
            raise BadMessage("a second start")
        form, _, rate = str(message.get("content-type", "")).partition(";rate=")
        self._sound_is(form.strip().lower(), rate, {"audio/l16": "pcm"}, (8000, 16000, 24000))
        self._started = True
        given = parameters_of({name: value for name, value in message.items() if name not in _OUR_OWN})
        call_id = given.get("uuid", given.get("call_uuid", ""))
        return Started(call_id, given.get("from", ""), given.get("to", ""), given)

    def sound(self, data: bytes) -> Frame:
        """See `Dialect.sound`."""
        if self.encoding != "pcm":
            raise BadCall("vonage takes linear sound only", 1011)
        return data

    def mark(self, name: str) -> Frame:
        """See `Dialect.mark`."""
        return json.dumps({"action": "notify", "payload": {"mark": name}})

    def clear(self) -> Frame:
        """See `Dialect.clear`."""
        return json.dumps({"action": "clear"})
