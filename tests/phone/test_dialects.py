"""Every carrier's protocol: what it says, what it is told, how it is recognised, and what is wrong with a message."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.calling.carriers import CARRIERS, Carrier, Clear, Mark, Play
from server.phone.asterisk import Asterisk
from server.phone.audiosocket import AudioSocket
from server.phone.dialects import recognised
from server.phone.wire import BadCall, BadMessage, Dialect, Digit, Frame, Held, Played, Sound, Started, Stopped

WEBSOCKETS = [name for name in CARRIERS if name != "audiosocket"]
SOUND = {"pcmu": bytes(range(160)), "pcm": bytes(range(160)) * 4}


def begun(carrier: Carrier) -> tuple[Dialect, Started]:
    """The dialect that a carrier's first messages are recognised as, and what they said."""
    dialect: Dialect | None = AudioSocket() if carrier.name == "audiosocket" else None
    frames = [*carrier.opening(), *([carrier.sound(bytes(320))] if carrier.name == "audiosocket" else [])]
    for frame in frames:
        dialect = dialect or recognised(frame)
        if dialect is not None and isinstance(said := dialect.take(frame), Started):
            return dialect, said
    raise AssertionError("no start")


@pytest.mark.parametrize("name", CARRIERS)
def test_a_carrier_is_recognised_and_understood_both_ways(name: str) -> None:
    carrier = CARRIERS[name]({"greeting": "Hello", "speed": "1.2"} if name != "audiosocket" else {})
    dialect, started = begun(carrier)
    assert (dialect.name, dialect.encoding, dialect.rate) == (name, carrier.encoding, carrier.rate)
    assert started.call_id or name == "vonage"
    if name != "audiosocket":
        assert (started.parameters["greeting"], started.parameters["speed"]) == ("Hello", "1.2")
    sound = SOUND[carrier.encoding][: carrier.rate * (2 if carrier.encoding == "pcm" else 1) // 50]
    heard = dialect.take(carrier.sound(sound))
    assert isinstance(heard, Sound)
    assert heard.data == sound
    assert dialect.take(carrier.digit("7")) == Digit("7")
    piece = sound * (dialect.piece_ms // 20)
    assert carrier.take(dialect.sound(piece)) == Play(piece)
    if (mark := dialect.mark("1.7")) is not None:
        assert carrier.take(mark) == Mark("1.7")
        reply = carrier.played("1.7")
        assert reply is not None
        assert dialect.take(reply) == Played("1.7")
    if (clear := dialect.clear()) is not None:
        assert carrier.take(clear) == Clear()
    if (cleared := carrier.cleared()) is not None:
        assert dialect.take(cleared) is None
    if (stop := carrier.stop()) is not None:
        assert isinstance(dialect.take(stop), Stopped)


def test_telnyx_may_speak_a_law() -> None:
    carrier = CARRIERS["telnyx"]({})
    carrier.encoding = "pcma"
    assert begun(carrier)[0].encoding == "pcma"


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
def test_asterisks_websocket_is_answered_in_its_own_form(first: str, command: str, mark: str) -> None:
    dialect = recognised(first)
    assert isinstance(dialect, Asterisk)
    started = dialect.take(first)
    assert isinstance(started, Started)
    assert (dialect.encoding, dialect.rate) == ("pcmu", 8000)
    assert dialect.hang_up() == command
    assert dialect.mark("1.2").endswith(mark)
    written = first.startswith("{")
    assert started.parameters.get("greeting") == ("Hello" if written else None)
    assert dialect.take(bytes(160)) == Sound(bytes(160))
    assert dialect.take('{"event":"DTMF_END","digit":"#"}' if written else "DTMF_END digit:#") == Digit("#")
    assert dialect.take('{"event":"MEDIA_XOFF"}' if written else "MEDIA_XOFF") == Held(True)
    assert dialect.take('{"event":"MEDIA_XON"}' if written else "MEDIA_XON") == Held(False)
    done = "MEDIA_MARK_PROCESSED"
    back = json.dumps({"event": done, "correlation_id": "1.2"}) if written else f"{done} 1.2"
    assert dialect.take(back) == Played("1.2")


def test_asterisk_may_have_wide_sound() -> None:
    dialect = recognised("MEDIA_START connection_id:c1 format:slin16")
    assert dialect is not None
    dialect.take("MEDIA_START connection_id:c1 format:slin16")
    assert (dialect.encoding, dialect.rate) == ("pcm", 16_000)


@pytest.mark.parametrize("kind", [0x10, 0x12, 0x13])
def test_audiosocket_tells_its_rate_with_its_first_sound(kind: int) -> None:
    dialect = AudioSocket()
    assert dialect.take(b"\x01\x00\x10" + bytes(range(16))) is None
    started = dialect.take(bytes([kind]) + b"\x01\x40" + bytes(320))
    assert started == Started("00010203-0405-0607-0809-0a0b0c0d0e0f")
    assert dialect.rate == {0x10: 8000, 0x12: 16_000, 0x13: 24_000}[kind]
    assert dialect.sound(bytes(320)) == bytes([kind]) + b"\x01\x40" + bytes(320)
    assert dialect.hang_up() == b"\x00\x00\x00"


def changed(frame: Frame, **fields: Any) -> str:
    return json.dumps({**json.loads(frame), **fields})


def start_with(name: str, **form: Any) -> str:
    """A carrier's start with another form of sound."""
    carrier = CARRIERS[name]({})
    said = json.loads(carrier.opening()[-1])
    inner = said["start"]
    key = "mediaFormat" if "mediaFormat" in inner else "media_format"
    inner[key] = {**inner[key], **form}
    return json.dumps(said)


@pytest.mark.parametrize(
    "frame",
    [
        start_with("twilio", encoding="audio/opus"),
        start_with("twilio", sampleRate=16000),
        start_with("telnyx", encoding="OPUS"),
        start_with("telnyx", sample_rate="fast"),
        start_with("plivo", encoding="audio/x-mulaw", sampleRate=16000),
        start_with("exotel", sample_rate=44100),
        '{"event": "websocket:connected", "content-type": "audio/opus"}',
        "MEDIA_START connection_id:c1 format:g722",
    ],
)
def test_a_wrong_codec_ends_the_call_with_the_code_for_it(frame: str) -> None:
    dialect = recognised(frame)
    assert dialect is not None
    with pytest.raises(BadCall, match="it may be") as refused:
        dialect.take(frame)
    assert refused.value.code == 1003


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("{nonsense", 1007),
        ("[1, 2]", 1007),
        ('"start"', 1007),
        ('{"event": "media"}', 1008),
        ('{"event": "start"}', 1008),
        ('{"event": "start", "start": {"room": 1}}', 1008),
        ("{}", 1008),
        (b"\x00\x01", 1003),
        ("[" * 100_000, 1007),
    ],
)
def test_what_begins_like_no_carrier_is_refused(frame: Frame, code: int) -> None:
    with pytest.raises(BadCall) as refused:
        recognised(frame)
    assert refused.value.code == code
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("name", WEBSOCKETS)
def test_what_makes_no_sense_is_left_out(name: str) -> None:
    carrier = CARRIERS[name]({})
    dialect, _ = begun(carrier)
    bad: list[Frame] = [
        '{"event": "dance"}',
        '{"event": null}',
        changed(carrier.digit("1"), dtmf={"digit": "12"}, digit="x"),
        carrier.opening()[-1],
    ]
    if name == "vonage":
        bad += [b"odd"]
    else:
        sound = carrier.sound(bytes(320))
        bad += [
            changed(sound, media={"payload": "%%%"}),
            changed(sound, media={"payload": 7}),
            changed(sound, media=[]),
            changed(sound, media=None),
            changed(sound, streamSid="another", stream_id="another", streamId="another", stream_sid="another"),
        ]
    for frame in bad:
        with pytest.raises(BadMessage):
            dialect.take(frame)
    with pytest.raises(BadCall):
        dialect.take("{nonsense")
    assert isinstance(dialect.take(carrier.sound(bytes(640))), Sound)


def test_the_other_direction_of_a_call_is_not_heard() -> None:
    carrier = CARRIERS["telnyx"]({})
    dialect, _ = begun(carrier)
    media = {"track": "outbound", "payload": base64.b64encode(bytes(160)).decode()}
    assert dialect.take(changed(carrier.sound(bytes(160)), media=media)) is None


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x01\x00\x02ab", 1007),
        (b"\xff\x00\x01\x01", 1011),
        (b"\x10\x00\x02ab", 1008),
        ("text", 1007),
    ],
)
def test_an_audiosocket_that_is_none_is_refused(frame: Frame, code: int) -> None:
    with pytest.raises(BadCall) as refused:
        AudioSocket().take(frame)
    assert refused.value.code == code


def test_an_audiosocket_at_a_rate_that_is_not_understood_is_refused() -> None:
    dialect = AudioSocket()
    dialect.take(b"\x01\x00\x10" + bytes(16))
    with pytest.raises(BadCall) as refused:
        dialect.take(b"\x15\x00\x02ab")
    assert refused.value.code == 1003


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    "event start media mark dtmf name digit payload streamSid stream_id streamId stream_sid customParameters "
    "mediaFormat media_format encoding sampleRate sample_rate call_control_id content-type extra_headers".split()
)
EVENTS = st.sampled_from("start media mark dtmf stop websocket:connected playedStream MEDIA_START error".split())


@given(st.dictionaries(KEYS, JSON | st.dictionaries(KEYS, JSON, max_size=4), max_size=5), EVENTS)
def test_no_message_does_more_than_be_refused(fields: dict[str, Any], event: str) -> None:
    frame = json.dumps({**fields, "event": event})
    dialects = [begun(CARRIERS[name]({}))[0] for name in WEBSOCKETS]
    for dialect in dialects:
        try:
            dialect.take(frame)
        except (BadMessage, BadCall) as refused:
            assert len(str(refused)) < 300
    try:
        first = recognised(frame)
        if first is not None:
            first.take(frame)
    except (BadMessage, BadCall):
        pass


@given(st.binary(max_size=40))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    dialect = AudioSocket()
    for frame in (b"\x01\x00\x10" + bytes(16), data, data):
        try:
            dialect.take(frame)
        except (BadMessage, BadCall):
            return
