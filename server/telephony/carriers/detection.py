"""Detects the carrier from a call's first messages, so that one URL serves all carriers."""

from __future__ import annotations

from server.telephony.carriers.asterisk import Asterisk
from server.telephony.carriers.json_stream import Exotel, Plivo, Telnyx, Twilio
from server.telephony.carriers.vonage import Vonage
from server.telephony.dialect import BadCall, Dialect, Frame, described, parse_json


def detect_carrier(frame: Frame) -> Dialect | None:
    """The dialect of a call's first messages; None while it is undecided (`connected` identifies no carrier).

    The rule is pipecat's (`runner/utils.py`), extended with Asterisk's.

    Raises:
        BadCall: no dialect starts with this frame.
    """
    if isinstance(frame, bytes):
        raise BadCall("a call must start with a text frame, not a binary one", 1003)
    if frame.lstrip().startswith("MEDIA_START"):
        return Asterisk()
    message = parse_json(frame)
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
    raise BadCall(f"no supported carrier starts a stream with {described(frame)}", 1008)
