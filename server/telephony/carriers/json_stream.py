"""The common part of carriers that stream a call as JSON messages, each with a stream id: Twilio, Telnyx, Plivo,
Exotel."""

from __future__ import annotations

import json
from abc import abstractmethod
from typing import Any, ClassVar

from server.telephony.dialect import (
    BadMessage,
    CallEnded,
    CallerAudio,
    CallStarted,
    CarrierEvent,
    Dialect,
    Frame,
    object_field,
    parse_dtmf,
    parse_json,
    parse_mark,
    parse_media,
    to_base64,
)


class JSONStreamDialect(Dialect):
    """JSON messages of one stream.

    Attributes:
        stream_key: the field that holds the stream id.
    """

    stream_key: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self._stream_id = ""

    def parse(self, frame: Frame) -> CarrierEvent | None:
        """See `Dialect.parse`."""
        message = parse_json(frame)
        kind = message.get("event")
        if kind == "start":
            start = object_field(message, "start")
            if self._stream_id:
                raise BadMessage("a second start")
            return self._parse_start(message, start)
        if self._is_outside_stream(message):
            return None
        stream_id = message.get(self.stream_key)
        if stream_id != self._stream_id:
            raise BadMessage(f"{str(kind)[:40]!r} for an unknown stream {str(stream_id)[:60]!r}")
        match kind:
            case "media":
                return self._parse_audio(object_field(message, "media"))
            case "dtmf":
                return parse_dtmf(object_field(message, "dtmf"))
            case "stop":
                return CallEnded("the caller hung up")
            case _:
                return self._parse_playback(message)

    @abstractmethod
    def _parse_start(self, message: dict[str, Any], start: dict[str, Any]) -> CallStarted:
        """The call begins: store its stream id and its audio format."""

    def _is_outside_stream(self, message: dict[str, Any]) -> bool:
        """Whether a message belongs to no stream and can be ignored."""
        return bool(message.get("event") == "connected")

    def audio(self, data: bytes) -> Frame:
        """See `Dialect.audio`."""
        return self._frame("media", media={"payload": to_base64(data)})

    def mark(self, name: str) -> Frame:
        """See `Dialect.mark`."""
        return self._frame("mark", mark={"name": name})

    def clear(self) -> Frame:
        """See `Dialect.clear`."""
        return self._frame("clear")

    def _frame(self, event: str, **fields: Any) -> str:
        """A command for the stream."""
        return json.dumps({"event": event, self.stream_key: self._stream_id, **fields})

    def _parse_audio(self, media: dict[str, Any]) -> CallerAudio | None:
        """The caller's audio; None for our own, which some carriers send back."""
        return parse_media(media) if media.get("track", "inbound") == "inbound" else None

    def _parse_playback(self, message: dict[str, Any]) -> CarrierEvent | None:
        """A report about the playback of our audio. Raises BadMessage for anything else."""
        if message.get("event") == "mark":
            return parse_mark(message)
        raise BadMessage(f"an unknown event {str(message.get('event'))[:40]!r}")


def media_format(start: dict[str, Any], name: str) -> dict[str, Any]:
    """The audio format in a start message; empty if there is none."""
    value = start.get(name)
    return value if isinstance(value, dict) else {}
