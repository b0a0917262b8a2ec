"""Twilio Media Streams, both ways; SignalWire and other emitters of the same messages speak it too.

Source: twilio.com/docs/voice/media-streams/websocket-messages.
"""

from __future__ import annotations

import json
from typing import Any

from server.phone.streamed import Streamed, form_of
from server.phone.wire import Frame, Started, base64_text, parameters_of


class Twilio(Streamed):
    """8 kHz µ-law in JSON. A clear returns every mark that waits."""

    name = "twilio"
    stream_key = "streamSid"

    def _start(self, message: dict[str, Any], start: dict[str, Any]) -> Started:
        form = form_of(start, "mediaFormat")
        self._sound_is(
            form.get("encoding", "audio/x-mulaw"), form.get("sampleRate", 8000), {"audio/x-mulaw": "pcmu"}, (8000,)
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
