"""Exotel's Voicebot applet: Twilio's messages with other names, and linear sound in large pieces.

Source: developer.exotel.com/docs/agentstream/stream-voicebot-applet.
"""

from __future__ import annotations

import json
from typing import Any

from server.phone.streamed import Streamed, form_of
from server.phone.wire import BadMessage, Frame, Heard, Sound, Started, base64_text, parameters_of, sound_of
from voice.audio import Encoding

_LINEAR: dict[str, Encoding] = {"raw/slin": "pcm", "base64": "pcm", "audio/x-l16": "pcm", "audio/l16": "pcm"}
"""The applet's names for its one form: `base64` is what its start messages really say."""


class Exotel(Streamed):
    """16-bit linear at 8, 16 or 24 kHz in JSON. Pieces below 3,200 bytes, 200 ms at 8 kHz, may sound broken, so the
    sound that is sent ahead is two pieces long at least."""

    name = "exotel"
    stream_key = "stream_sid"
    ahead_ms = 600
    piece_ms = 200

    def __init__(self) -> None:
        super().__init__()
        self.encoding = "pcm"

    def _sound(self, media: dict[str, Any]) -> Sound | None:
        heard = sound_of(media)
        if len(heard.data) % 2:
            raise BadMessage(f"{len(heard.data)} bytes of sound, which are not 16-bit samples")
        return heard

    def _playback(self, message: dict[str, Any]) -> Heard | None:
        return None if message.get("event") == "clear" else super()._playback(message)

    def _start(self, message: dict[str, Any], start: dict[str, Any]) -> Started:
        form = form_of(start, "media_format")
        encoding = str(form.get("encoding", "raw/slin")).lower()
        self._sound_is(encoding, form.get("sample_rate") or 8000, _LINEAR, (8000, 16000, 24000))
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
