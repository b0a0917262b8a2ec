"""Asterisk's chan_websocket: audio as binary frames in the channel's codec, everything else as text.

Source: docs.asterisk.org/Configuration/Channel-Drivers/WebSocket. Releases from 20.18, 22.8 and 23.2 on can be
configured to use JSON; commands use the format of the first message.
"""

from __future__ import annotations

import json
from typing import Any

from server.telephony.dialect import (
    BadMessage,
    BufferState,
    CallEnded,
    CallStarted,
    CarrierEvent,
    Dialect,
    Frame,
    MarkPlayed,
    described,
    parse_dtmf,
    parse_json,
    parse_parameters,
)
from voice.audio.codec import Encoding

_CODECS: dict[str, Encoding] = {"ulaw": "pcmu", "alaw": "pcma", "slin": "pcm", "slin16": "pcm", "slin24": "pcm"}
_RATES = {"slin16": 16_000, "slin24": 24_000}


class Asterisk(Dialect):
    """Asterisk paces playback itself and reports when its queue is full. Its MARK_MEDIA is our mark."""

    name = "asterisk"

    def __init__(self) -> None:
        super().__init__()
        self._json = False

    def parse(self, frame: Frame) -> CarrierEvent | None:
        if isinstance(frame, bytes):
            if not self._started:
                raise BadMessage("audio before MEDIA_START")
            return self._caller_audio(frame)
        kind, fields = _parse_text(frame)
        match kind:
            case "MEDIA_START":
                return self._start(fields, as_json=frame.lstrip().startswith("{"))
            case "DTMF_END":
                return parse_dtmf(fields)
            case "MEDIA_MARK_PROCESSED":
                return MarkPlayed(str(fields.get("correlation_id", ""))[:100])
            case "MEDIA_XOFF" | "MEDIA_XON":
                return BufferState(kind == "MEDIA_XOFF")
            case "STATUS" | "QUEUE_DRAINED" | "MEDIA_BUFFERING_COMPLETED" | "DTMF_BEGIN":
                return None
            case "HANGUP":
                return CallEnded("the caller hung up")
            case _:
                raise BadMessage(f"an unknown event {described(kind)}")

    def _start(self, fields: dict[str, Any], *, as_json: bool) -> CallStarted:
        codec = str(fields.get("format", "ulaw")).lower()
        self._begin(codec, _RATES.get(codec, 8000), _CODECS, (8000, 16000, 24000))
        self._json = as_json
        parameters = parse_parameters(fields.get("channel_variables"))
        return CallStarted(str(fields.get("channel_id") or fields.get("connection_id", "")), parameters=parameters)

    def mark(self, name: str) -> Frame:
        return self._command("MARK_MEDIA", correlation_id=name)

    def clear(self) -> Frame:
        return self._command("FLUSH_MEDIA")

    def answer(self) -> Frame:
        return self._command("ANSWER")

    def hang_up(self) -> Frame:
        return self._command("HANGUP")

    def _command(self, command: str, **fields: str) -> str:
        if self._json:
            return json.dumps({"command": command, **fields})
        return " ".join([command, *fields.values()])


def _parse_text(frame: str) -> tuple[str, dict[str, Any]]:
    """An event and its fields, from JSON or from `EVENT name:value …`, where a mark's id has no name."""
    if frame.lstrip().startswith("{"):
        message = parse_json(frame)
        return str(message.get("event", "")), message
    kind, *words = frame[:4096].split() or [""]
    pairs = (word.partition(":") for word in words)
    return kind, {name if sep else "correlation_id": value if sep else name for name, sep, value in pairs}
