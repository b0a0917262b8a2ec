"""Asterisk's chan_websocket: text and JSON messages, and wideband audio."""

from __future__ import annotations

import json

import pytest

from server.telephony.carriers.asterisk import Asterisk
from server.telephony.carriers.detection import detect_carrier
from server.telephony.dialect import BufferState, CallerAudio, CallStarted, DtmfDigit, MarkPlayed


@pytest.mark.parametrize(
    ("first", "command", "mark"),
    [
        ("MEDIA_START connection_id:c1 channel:WebSocket/c1/0x1 format:ulaw optimal_frame_size:160", "HANGUP", "1.2"),
        (
            '{"event": "MEDIA_START", "connection_id": "c1", "channel_id": "1761.1", "format": "ulaw", "ptime": 20, '
            '"channel_variables": {"greeting": "Hello"}}',
            '{"command": "HANGUP"}',
            '{"command": "MARK_MEDIA", "correlation_id": "1.2"}',
        ),
    ],
    ids=["text", "json"],
)
def test_commands_use_the_format_of_the_first_message(first: str, command: str, mark: str) -> None:
    dialect = detect_carrier(first)
    assert isinstance(dialect, Asterisk)
    started = dialect.parse(first)
    assert isinstance(started, CallStarted)
    assert (dialect.encoding, dialect.rate) == ("pcmu", 8000)
    assert dialect.hang_up() == command
    assert dialect.mark("1.2").endswith(mark)
    as_json = first.startswith("{")
    assert started.parameters.get("greeting") == ("Hello" if as_json else None)
    assert dialect.parse(bytes(160)) == CallerAudio(bytes(160))
    assert dialect.parse('{"event":"DTMF_END","digit":"#"}' if as_json else "DTMF_END digit:#") == DtmfDigit("#")
    assert dialect.parse('{"event":"MEDIA_XOFF"}' if as_json else "MEDIA_XOFF") == BufferState(True)
    assert dialect.parse('{"event":"MEDIA_XON"}' if as_json else "MEDIA_XON") == BufferState(False)
    processed = "MEDIA_MARK_PROCESSED"
    returned = json.dumps({"event": processed, "correlation_id": "1.2"}) if as_json else f"{processed} 1.2"
    assert dialect.parse(returned) == MarkPlayed("1.2")


def test_a_call_may_use_wideband_audio() -> None:
    dialect = detect_carrier("MEDIA_START connection_id:c1 format:slin16")
    assert dialect is not None
    dialect.parse("MEDIA_START connection_id:c1 format:slin16")
    assert (dialect.encoding, dialect.rate) == ("pcm", 16_000)
