"""Twilio Media Streams in both directions. SignalWire and others send the same messages.

Source: twilio.com/docs/voice/media-streams/websocket-messages.
"""

from __future__ import annotations

from typing import Any

from server.telephony.carriers.json_stream import JSONStreamDialect, media_format
from server.telephony.dialect import CallStarted, parse_parameters


class Twilio(JSONStreamDialect):
    """8 kHz µ-law in JSON. A clear returns every pending mark."""

    name = "twilio"
    stream_key = "streamSid"

    def _parse_start(self, message: dict[str, Any], start: dict[str, Any]) -> CallStarted:
        audio = media_format(start, "mediaFormat")
        encoding, rate = audio.get("encoding", "audio/x-mulaw"), audio.get("sampleRate", 8000)
        self._set_audio_format(encoding, rate, {"audio/x-mulaw": "pcmu"}, (8000,))
        self._stream_id = str(start.get("streamSid", ""))
        parameters = parse_parameters(start.get("customParameters"))
        return CallStarted(
            str(start.get("callSid", "")), parameters.get("from", ""), parameters.get("to", ""), parameters
        )
