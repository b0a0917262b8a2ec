"""What the carriers have in common that stream a call as JSON messages, each naming its stream: Twilio, Telnyx, Plivo,
Exotel."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from server.phone.wire import (
    BadMessage,
    Dialect,
    Frame,
    Heard,
    Sound,
    Started,
    Stopped,
    digit_of,
    mark_of,
    part,
    said,
    sound_of,
)


class Streamed(Dialect):
    """JSON messages of one stream.

    Attributes:
        stream_key: the field that names the stream.
    """

    stream_key: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self._stream = ""

    def take(self, frame: Frame) -> Heard | None:
        """See `Dialect.take`."""
        message = said(frame)
        kind = message.get("event")
        if kind == "start":
            start = part(message, "start")
            if self._stream:
                raise BadMessage("a second start")
            return self._start(message, start)
        if self._of_no_stream(message):
            return None
        stream = message.get(self.stream_key)
        if stream != self._stream:
            raise BadMessage(f"{str(kind)[:40]!r} for an unknown stream {str(stream)[:60]!r}")
        match kind:
            case "media":
                return self._sound(part(message, "media"))
            case "dtmf":
                return digit_of(part(message, "dtmf"))
            case "stop":
                return Stopped("the caller hung up")
            case _:
                return self._playback(message)

    @abstractmethod
    def _start(self, message: dict[str, Any], start: dict[str, Any]) -> Started:
        """The call begins: note its stream and its sound."""

    def _of_no_stream(self, message: dict[str, Any]) -> bool:
        """Whether a message names no stream and says nothing that matters."""
        return bool(message.get("event") == "connected")

    def _sound(self, media: dict[str, Any]) -> Sound | None:
        """The caller's sound; None for our own, where a carrier sends that back."""
        return sound_of(media) if media.get("track", "inbound") == "inbound" else None

    def _playback(self, message: dict[str, Any]) -> Heard | None:
        """What the carrier says of the sound that it was sent. Raises BadMessage for anything else."""
        if message.get("event") == "mark":
            return mark_of(message)
        raise BadMessage(f"an unknown event {str(message.get('event'))[:40]!r}")


def form_of(start: dict[str, Any], name: str) -> dict[str, Any]:
    """The form of the sound in a start message; empty where it says none."""
    form = start.get(name)
    return form if isinstance(form, dict) else {}
