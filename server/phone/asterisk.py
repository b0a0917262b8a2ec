"""Asterisk's chan_websocket: sound as binary frames in the channel's codec, everything else as text.

Source: docs.asterisk.org/Configuration/Channel-Drivers/WebSocket. Releases from 20.18, 22.8 and 23.2 on can be told to
use JSON; commands are given in the form that the first message had.
"""

from __future__ import annotations

import json
from typing import Any

from server.phone.wire import (
    BadMessage,
    Dialect,
    Frame,
    Heard,
    Held,
    Played,
    Sound,
    Started,
    Stopped,
    digit_of,
    parameters_of,
    said,
)
from voice.audio import Encoding

_CODECS: dict[str, Encoding] = {"ulaw": "pcmu", "alaw": "pcma", "slin": "pcm", "slin16": "pcm", "slin24": "pcm"}
_RATES = {"slin16": 16_000, "slin24": 24_000}


class Asterisk(Dialect):
    """Asterisk keeps the time itself and says when its queue is full. A mark is its MARK_MEDIA."""

    name = "asterisk"

    def __init__(self) -> None:
        super().__init__()
        self._json: bool | None = None

    def take(self, frame: Frame) -> Heard | None:
        """See `Dialect.take`."""
        if isinstance(frame, bytes):
            if self._json is None:
                raise BadMessage("sound before MEDIA_START")
            if self.encoding == "pcm" and len(frame) % 2:
                raise BadMessage(f"{len(frame)} bytes of sound, which are not 16-bit samples")
            return Sound(frame)
        kind, fields = _read(frame)
        match kind:
            case "MEDIA_START":
                return self._start(fields, written=frame.lstrip().startswith("{"))
            case "DTMF_END":
                return digit_of(fields)
            case "MEDIA_MARK_PROCESSED":
                return Played(str(fields.get("correlation_id", ""))[:100])
            case "MEDIA_XOFF" | "MEDIA_XON":
                return Held(kind == "MEDIA_XOFF")
            case "STATUS" | "QUEUE_DRAINED" | "MEDIA_BUFFERING_COMPLETED" | "DTMF_BEGIN":
                return None
            case "HANGUP":
                return Stopped("the caller hung up")
            case _:
                raise BadMessage(f"an unknown event {kind[:40]!r}")

    def _start(self, fields: dict[str, Any], *, written: bool) -> Started:
        if self._json is not None:
            raise BadMessage("a second MEDIA_START")
        codec = fields.get("format", "ulaw")
        self._sound_is(codec, _RATES.get(str(codec), 8000), _CODECS, (8000, 16000, 24000))
        self._json = written
        given = parameters_of(fields.get("channel_variables"))
        return Started(str(fields.get("channel_id") or fields.get("connection_id", "")), parameters=given)

    def sound(self, data: bytes) -> Frame:
        """See `Dialect.sound`."""
        return data

    def mark(self, name: str) -> Frame:
        """See `Dialect.mark`."""
        return self._command("MARK_MEDIA", correlation_id=name)

    def clear(self) -> Frame:
        """See `Dialect.clear`."""
        return self._command("FLUSH_MEDIA")

    def answer(self) -> Frame:
        """See `Dialect.answer`."""
        return self._command("ANSWER")

    def hang_up(self) -> Frame:
        """See `Dialect.hang_up`."""
        return self._command("HANGUP")

    def _command(self, command: str, **fields: str) -> str:
        if self._json:
            return json.dumps({"command": command, **fields})
        return " ".join([command, *fields.values()])


def _read(frame: str) -> tuple[str, dict[str, Any]]:
    """An event and its fields, from JSON or from `EVENT name:value …`, where a mark's id stands without a name."""
    if frame.lstrip().startswith("{"):
        message = said(frame)
        return str(message.get("event", "")), message
    kind, *rest = frame[:4096].split() or [""]
    pairs = (word.partition(":") for word in rest)
    return kind, {name if sep else "correlation_id": value if sep else name for name, sep, value in pairs}
