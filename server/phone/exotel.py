"""Exotel's Voicebot applet: Twilio's messages with other names, and linear sound in large pieces.

Source: developer.exotel.com/docs/agentstream/stream-voicebot-applet.
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
from voice.audio import Encoding

_LINEAR: dict[str, Encoding] = {"raw/slin": "pcm", "base64": "pcm", "audio/x-l16": "pcm", "audio/l16": "pcm"}
"""The applet's names for its one form: `base64` is what its start messages really say."""


class Exotel(Dialect):
    """16-bit linear at 8, 16 or 24 kHz in JSON. Pieces below 3,200 bytes, 200 ms at 8 kHz, may sound broken, so the
    sound that is sent ahead is two pieces long at least."""

    name = "exotel"
    ahead_ms = 600
    piece_ms = 200

    def __init__(self) -> None:
        super().__init__()
        self.encoding = "pcm"
        self._stream = ""

    def take(self, frame: Frame) -> Heard | None:
        """See `Dialect.take`."""
        message = said(frame)
        match message.get("event"):
            case "connected":
                return None
            case "start":
                return self._start(part(message, "start"))
            case kind if message.get("stream_sid") != self._stream:
                raise BadMessage(f"{str(kind)[:40]!r} for an unknown stream {str(message.get('stream_sid'))[:60]!r}")
            case "media":
                heard = sound_of(part(message, "media"))
                if len(heard.data) % 2:
                    raise BadMessage(f"{len(heard.data)} bytes of sound, which are not 16-bit samples")
                return heard
            case "dtmf":
                return digit_of(part(message, "dtmf"))
            case "mark":
                return mark_of(message)
            case "clear":
                return None
            case "stop":
                return Stopped("the caller hung up")
            case kind:
                raise BadMessage(f"an unknown event {str(kind)[:40]!r}")

    def _start(self, start: dict[str, object]) -> Started:
        if self._stream:
            raise BadMessage("a second start")
        form = start.get("media_format")
        known = form if isinstance(form, dict) else {}
        encoding = str(known.get("encoding", "raw/slin")).lower()
        self._sound_is(encoding, known.get("sample_rate") or 8000, _LINEAR, (8000, 16000, 24000))
        self._stream = str(start.get("stream_sid", ""))
        given = parameters_of(start.get("custom_parameters"))
        return Started(str(start.get("call_sid", "")), str(start.get("from", "")), str(start.get("to", "")), given)

    def sound(self, data: bytes) -> Frame:
        """See `Dialect.sound`."""
        return json.dumps({"event": "media", "stream_sid": self._stream, "media": {"payload": base64_text(data)}})

    def mark(self, name: str) -> Frame:
        """See `Dialect.mark`."""
        return json.dumps({"event": "mark", "stream_sid": self._stream, "mark": {"name": name}})

    def clear(self) -> Frame:
        """See `Dialect.clear`."""
        return json.dumps({"event": "clear", "stream_sid": self._stream})
