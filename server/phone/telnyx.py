"""Telnyx media streaming in its bidirectional RTP mode.

Source: developers.telnyx.com/docs/voice/programmable-voice/media-streaming. Frames may overtake each other.
"""

from __future__ import annotations

import json
from typing import Any

from server.phone.streamed import Streamed, form_of
from server.phone.wire import BadCall, Frame, Started, base64_text, parameters_of
from voice.audio import Encoding

_LAWS: dict[str, Encoding] = {"PCMU": "pcmu", "PCMA": "pcma"}


class Telnyx(Streamed):
    """G.711 in JSON, in the law that the call has; what we send must be in the same one."""

    name = "telnyx"
    stream_key = "stream_id"

    def _of_no_stream(self, message: dict[str, Any]) -> bool:
        if message.get("event") == "error":
            raise BadCall(f"telnyx reports an error: {str(message.get('payload'))[:200]}", 1011)
        return super()._of_no_stream(message)

    def _start(self, message: dict[str, Any], start: dict[str, Any]) -> Started:
        self._stream = str(message.get("stream_id", ""))
        form = form_of(start, "media_format")
        self._sound_is(form.get("encoding", "PCMU"), form.get("sample_rate", 8000), _LAWS, (8000,))
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
