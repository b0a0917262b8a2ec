"""Telnyx media streaming in its bidirectional RTP mode.

Source: developers.telnyx.com/docs/voice/programmable-voice/media-streaming. Frames may overtake each other.
"""

from __future__ import annotations

import json

from server.phone.wire import (
    BadCall,
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
from voice.audio import Encoding

_LAWS: dict[str, Encoding] = {"PCMU": "pcmu", "PCMA": "pcma"}


class Telnyx(Dialect):
    """G.711 in JSON, in the law that the call has; what we send must be in the same one."""

    name = "telnyx"

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
                return self._start(str(message.get("stream_id", "")), part(message, "start"))
            case "error":
                payload = message.get("payload")
                raise BadCall(f"telnyx reports an error: {str(payload)[:200]}", 1011)
            case kind if message.get("stream_id") != self._stream:
                raise BadMessage(f"{str(kind)[:40]!r} for an unknown stream {str(message.get('stream_id'))[:60]!r}")
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

    def _start(self, stream: str, start: dict[str, object]) -> Started:
        if self._stream:
            raise BadMessage("a second start")
        self._stream = stream
        form = start.get("media_format")
        known = form if isinstance(form, dict) else {}
        self._sound_is(known.get("encoding", "PCMU"), known.get("sample_rate", 8000), _LAWS, (8000,))
        given = parameters_of(start.get("custom_parameters"))
        return Started(
            str(start.get("call_control_id", "")), str(start.get("from", "")), str(start.get("to", "")), given
        )

    def sound(self, data: bytes) -> Frame:
        """See `Dialect.sound`."""
        return json.dumps({"event": "media", "media": {"payload": base64_text(data)}})

    def mark(self, name: str) -> Frame:
        """See `Dialect.mark`."""
        return json.dumps({"event": "mark", "mark": {"name": name}})

    def clear(self) -> Frame:
        """See `Dialect.clear`."""
        return json.dumps({"event": "clear"})
