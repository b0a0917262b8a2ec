"""Plivo audio streaming in both directions. Its checkpoints are our marks.

Source: plivo.com/docs/voice-agents/audio-streaming/concepts/audio-streaming-reference.
"""

from __future__ import annotations

import json
from typing import Any

from server.telephony.carriers.json_stream import JSONStreamDialect, media_format
from server.telephony.dialect import (
    BadMessage,
    CallStarted,
    CarrierEvent,
    Frame,
    MarkPlayed,
    parse_parameters,
    to_base64,
)
from voice.audio.codec import Encoding

_ENCODINGS: dict[str, Encoding] = {"audio/x-mulaw": "pcmu", "audio/x-l16": "pcm"}


class Plivo(JSONStreamDialect):
    """µ-law or 16-bit linear in JSON."""

    name = "plivo"
    stream_key = "streamId"

    def _is_outside_stream(self, message: dict[str, Any]) -> bool:
        return False

    def _parse_playback(self, message: dict[str, Any]) -> CarrierEvent | None:
        match message.get("event"):
            case "playedStream":
                return MarkPlayed(str(message.get("name", ""))[:100])
            case "clearedAudio":
                return None
            case kind:
                raise BadMessage(f"an unknown event {str(kind)[:40]!r}")

    def _parse_start(self, message: dict[str, Any], start: dict[str, Any]) -> CallStarted:
        audio = media_format(start, "mediaFormat")
        encoding, rate = audio.get("encoding", "audio/x-mulaw"), audio.get("sampleRate", 8000)
        self._set_audio_format(encoding, rate, _ENCODINGS, (8000, 16000))
        if self.encoding == "pcmu":
            self._set_audio_format("audio/x-mulaw", self.rate, _ENCODINGS, (8000,))
        self._stream_id = str(start.get("streamId", ""))
        parameters = parse_parameters(_split_headers(message.get("extra_headers")))
        return CallStarted(
            str(start.get("callId", "")), parameters.get("from", ""), parameters.get("to", ""), parameters
        )

    def audio(self, data: bytes) -> Frame:
        """See `Dialect.audio`."""
        content_type = "audio/x-mulaw" if self.encoding == "pcmu" else "audio/x-l16"
        media = {"contentType": content_type, "sampleRate": self.rate, "payload": to_base64(data)}
        return json.dumps({"event": "playAudio", "media": media})

    def mark(self, name: str) -> Frame:
        """See `Dialect.mark`."""
        return self._frame("checkpoint", name=name)

    def clear(self) -> Frame:
        """See `Dialect.clear`."""
        return self._frame("clearAudio")


def _split_headers(headers: object) -> object:
    """`a=1;b=2`, or `{a: 1, b: 2}` as in some calls, as parameters."""
    if not isinstance(headers, str):
        return headers
    pairs = (
        pair.partition("=" if "=" in pair else ":") for pair in headers[:4096].strip("{}").replace(";", ",").split(",")
    )
    return {name.strip().removeprefix("X-PH-"): value.strip() for name, sep, value in pairs if sep}
