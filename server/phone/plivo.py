"""Plivo audio streaming, both ways: checkpoints are its marks.

Source: plivo.com/docs/voice-agents/audio-streaming/concepts/audio-streaming-reference.
"""

from __future__ import annotations

import json
import re

from server.phone.wire import (
    BadMessage,
    Dialect,
    Frame,
    Heard,
    Played,
    Started,
    Stopped,
    base64_text,
    digit_of,
    parameters_of,
    part,
    said,
    sound_of,
)
from voice.audio import Encoding

_FORMS: dict[str, Encoding] = {"audio/x-mulaw": "pcmu", "audio/x-l16": "pcm"}


class Plivo(Dialect):
    """µ-law or 16-bit linear in JSON."""

    name = "plivo"

    def __init__(self) -> None:
        super().__init__()
        self._stream = ""

    def take(self, frame: Frame) -> Heard | None:
        """See `Dialect.take`."""
        message = said(frame)
        match message.get("event"):
            case "start":
                return self._start(part(message, "start"), message.get("extra_headers"))
            case kind if message.get("streamId") != self._stream:
                raise BadMessage(f"{str(kind)[:40]!r} for an unknown stream {str(message.get('streamId'))[:60]!r}")
            case "media":
                media = part(message, "media")
                return sound_of(media) if media.get("track", "inbound") == "inbound" else None
            case "dtmf":
                return digit_of(part(message, "dtmf"))
            case "playedStream":
                return Played(str(message.get("name", ""))[:100])
            case "clearedAudio":
                return None
            case "stop":
                return Stopped("the caller hung up")
            case kind:
                raise BadMessage(f"an unknown event {str(kind)[:40]!r}")

    def _start(self, start: dict[str, object], headers: object) -> Started:
        if self._stream:
            raise BadMessage("a second start")
        form = start.get("mediaFormat")
        known = form if isinstance(form, dict) else {}
        self._sound_is(known.get("encoding", "audio/x-mulaw"), known.get("sampleRate", 8000), _FORMS, (8000, 16000))
        if self.encoding == "pcmu":
            self._sound_is("audio/x-mulaw", self.rate, _FORMS, (8000,))
        self._stream = str(start.get("streamId", ""))
        given = parameters_of(_headers(headers))
        return Started(str(start.get("callId", "")), given.get("from", ""), given.get("to", ""), given)

    def sound(self, data: bytes) -> Frame:
        """See `Dialect.sound`."""
        form = "audio/x-mulaw" if self.encoding == "pcmu" else "audio/x-l16"
        media = {"contentType": form, "sampleRate": self.rate, "payload": base64_text(data)}
        return json.dumps({"event": "playAudio", "media": media})

    def mark(self, name: str) -> Frame:
        """See `Dialect.mark`."""
        return json.dumps({"event": "checkpoint", "streamId": self._stream, "name": name})

    def clear(self) -> Frame:
        """See `Dialect.clear`."""
        return json.dumps({"event": "clearAudio", "streamId": self._stream})


def _headers(given: object) -> object:
    """`a=1;b=2`, or `{a: 1, b: 2}` as some calls write it, as parameters."""
    if not isinstance(given, str):
        return given
    pairs = (pair.partition("=" if "=" in pair else ":") for pair in re.split(r"[;,]", given[:4096].strip("{}")))
    return {name.strip().removeprefix("X-PH-"): value.strip() for name, sep, value in pairs if sep}
