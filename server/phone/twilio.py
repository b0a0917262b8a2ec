"""Twilio Media Streams, both ways; SignalWire and other emitters of the same messages speak it too.

Source: twilio.com/docs/voice/media-streams/websocket-messages.
"""

from __future__ import annotations

import json

from server.phone.wire import (
    BadMessage,
    Dialect,
    Frame,
    Heard,
    Started,
    Stopped,
    base64_text,
    digit_of,
    mark_of,
    parameters_of,
    part,
    said,
    sound_of,
)


class Twilio(Dialect):
    """8 kHz µ-law in JSON. A clear returns every mark that waits."""

    name = "twilio"

    def __init__(self) -> None:
        super().__init__()
        self._stream = ""

    def take(self, frame: Frame) -> Heard | None:
        """See `Dialect.take`."""
        message = said(frame)
        match message.get("event"):
            case "connected":
                return None
            case "start":
                return self._start(part(message, "start"))
            case kind if message.get("streamSid") != self._stream:
                raise BadMessage(f"{str(kind)[:40]!r} for an unknown stream {str(message.get('streamSid'))[:60]!r}")
            case "media":
                media = part(message, "media")
                return sound_of(media) if media.get("track", "inbound") == "inbound" else None
            case "dtmf":
                return digit_of(part(message, "dtmf"))
            case "mark":
                return mark_of(message)
            case "stop":
                return Stopped("the caller hung up")
            case kind:
                raise BadMessage(f"an unknown event {str(kind)[:40]!r}")

    def _start(self, start: dict[str, object]) -> Started:
        if self._stream:
            raise BadMessage("a second start")
        form = start.get("mediaFormat")
        known = form if isinstance(form, dict) else {}
        self._sound_is(
            known.get("encoding", "audio/x-mulaw"), known.get("sampleRate", 8000), {"audio/x-mulaw": "pcmu"}, (8000,)
        )
        self._stream = str(start.get("streamSid", ""))
        given = parameters_of(start.get("customParameters"))
        return Started(str(start.get("callSid", "")), given.get("from", ""), given.get("to", ""), given)

    def sound(self, data: bytes) -> Frame:
        """See `Dialect.sound`."""
        return json.dumps({"event": "media", "streamSid": self._stream, "media": {"payload": base64_text(data)}})

    def mark(self, name: str) -> Frame:
        """See `Dialect.mark`."""
        return json.dumps({"event": "mark", "streamSid": self._stream, "mark": {"name": name}})

    def clear(self) -> Frame:
        """See `Dialect.clear`."""
        return json.dumps({"event": "clear", "streamSid": self._stream})
