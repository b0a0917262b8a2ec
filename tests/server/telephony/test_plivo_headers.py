"""Plivo's extra headers: what is written is read again, and nothing but letters and digits is written."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from server.telephony.carriers.json_stream import Plivo
from server.telephony.dialect import CallStarted
from server.telephony.plivo_headers import read_value, write_headers


@given(st.text(max_size=60))
@example("hex")
@example("hex48")
@example("+1555")
def test_any_value_comes_back(value: str) -> None:
    name, _, written = write_headers({"greeting": value}).partition("=")
    assert name == "greeting"
    assert written == "" or (written.isascii() and written.isalnum())
    assert read_value(written) == value


@pytest.mark.parametrize("value", ["hexagon", "hexff", "plain", ""])
def test_a_value_that_is_not_written_so_stays(value: str) -> None:
    assert read_value(value) == value


def test_what_has_no_room_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    written = write_headers({"greeting": "é" * 200, "voice": "kokoro"})
    assert written == "voice=kokoro"
    assert "greeting" in caplog.text and "é" not in caplog.text


@pytest.mark.parametrize("as_text", [True, False])
def test_a_call_has_the_parameters_of_its_document(as_text: bool) -> None:
    written = write_headers({"greeting": "Hi, you!", "speed": "1.25"})
    headers = dict(word.split("=") for word in written.split(","))
    start = {
        "event": "start",
        "start": {"streamId": "s", "callId": "c", "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000}},
        "extra_headers": ";".join(f"X-PH-{name}={value}" for name, value in headers.items()) if as_text else headers,
    }
    event = Plivo().parse(json.dumps(start))
    assert isinstance(event, CallStarted)
    assert dict(event.parameters) == {"greeting": "Hi, you!", "speed": "1.25"}
