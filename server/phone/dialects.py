"""Which carrier is calling: told by its first messages, so that one address serves them all."""

from __future__ import annotations

from server.phone.asterisk import Asterisk
from server.phone.exotel import Exotel
from server.phone.plivo import Plivo
from server.phone.telnyx import Telnyx
from server.phone.twilio import Twilio
from server.phone.vonage import Vonage
from server.phone.wire import BadCall, Dialect, Frame, said


def recognised(frame: Frame) -> Dialect | None:
    """The dialect of a call's first messages; None while it cannot be told yet (`connected` says nothing).

    The rule is pipecat's (`runner/utils.py`), with Asterisk's.

    Raises:
        BadCall: no dialect begins like this.
    """
    if isinstance(frame, bytes):
        raise BadCall("a call begins with a text frame, and this is a binary one", 1003)
    if frame.lstrip().startswith("MEDIA_START"):
        return Asterisk()
    message = said(frame)
    kind, start = message.get("event"), message.get("start")
    if kind == "connected":
        return None
    if kind == "websocket:connected":
        return Vonage()
    if kind == "MEDIA_START":
        return Asterisk()
    if kind == "start" and isinstance(start, dict):
        if "streamSid" in start:
            return Twilio()
        if "stream_id" in message and "call_control_id" in start:
            return Telnyx()
        if "streamId" in start:
            return Plivo()
        if "stream_sid" in start:
            return Exotel()
    raise BadCall(f"no carrier's stream that is known here begins with {frame[:80]!r}", 1008)
