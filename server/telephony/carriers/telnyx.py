"""Telnyx media streaming in its bidirectional RTP mode.

Source: developers.telnyx.com/docs/voice/programmable-voice/media-streaming. Frames may arrive out of order.
"""

from __future__ import annotations

import json
from typing import Any

from server.telephony.carriers.json_stream import JSONStreamDialect, media_format
from server.telephony.dialect import BadCall, CallStarted, Frame, parse_parameters, to_base64
from voice.audio.codec import Encoding

_ENCODINGS: dict[str, Encoding] = {"PCMU": "pcmu", "PCMA": "pcma"}


class Telnyx(JSONStreamDialect):
    """G.711 in JSON. Audio that we send must use the call's own companding law."""

    name = "telnyx"
    stream_key = "stream_id"

    def _is_outside_stream(self, message: dict[str, Any]) -> bool:
        if message.get("event") == "error":
            raise BadCall(f"telnyx reports an error: {str(message.get('payload'))[:200]}", 1011)
        return super()._is_outside_stream(message)

    def _parse_start(self, message: dict[str, Any], start: dict[str, Any]) -> CallStarted:
        self._stream_id = str(message.get("stream_id", ""))
        audio = media_format(start, "media_format")
        self._set_audio_format(audio.get("encoding", "PCMU"), audio.get("sample_rate", 8000), _ENCODINGS, (8000,))
        parameters = parse_parameters(start.get("custom_parameters"))
        return CallStarted(
            str(start.get("call_control_id", "")), str(start.get("from", "")), str(start.get("to", "")), parameters
        )

    def audio(self, data: bytes) -> Frame:
        """See `Dialect.audio`."""
        return json.dumps({"event": "media", "media": {"payload": to_base64(data)}})

    def mark(self, name: str) -> Frame:
        """See `Dialect.mark`."""
        return json.dumps({"event": "mark", "mark": {"name": name}})

    def clear(self) -> Frame:
        """See `Dialect.clear`."""
        return json.dumps({"event": "clear"})
