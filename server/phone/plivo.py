"""Plivo audio streaming, both ways: checkpoints are its marks.

Source: plivo.com/docs/voice-agents/audio-streaming/concepts/audio-streaming-reference.
"""

from __future__ import annotations

import json
import re
from typing import Any

from server.phone.streamed import Streamed, form_of
from server.phone.wire import BadMessage, Frame, Heard, Played, Started, base64_text, parameters_of
from voice.audio import Encoding

_FORMS: dict[str, Encoding] = {"audio/x-mulaw": "pcmu", "audio/x-l16": "pcm"}


class Plivo(Streamed):
    """µ-law or 16-bit linear in JSON."""

    name = "plivo"
    stream_key = "streamId"

    def _of_no_stream(self, message: dict[str, Any]) -> bool:
        return False

    def _playback(self, message: dict[str, Any]) -> Heard | None:
        match message.get("event"):
            case "playedStream":
                return Played(str(message.get("name", ""))[:100])
            case "clearedAudio":
                return None
            case kind:
                raise BadMessage(f"an unknown event {str(kind)[:40]!r}")

    def _start(self, message: dict[str, Any], start: dict[str, Any]) -> Started:
        form = form_of(start, "mediaFormat")
        self._sound_is(form.get("encoding", "audio/x-mulaw"), form.get("sampleRate", 8000), _FORMS, (8000, 16000))
        if self.encoding == "pcmu":
            self._sound_is("audio/x-mulaw", self.rate, _FORMS, (8000,))
        self._stream = str(start.get("streamId", ""))
        given = parameters_of(_headers(message.get("extra_headers")))
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
