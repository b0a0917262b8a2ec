"""What all dialects have in common: round trips with the simulated carrier, unsupported codecs, invalid messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulator.carriers import CARRIERS, Clear, Mark, Play
from server.telephony.carriers.detection import detect_carrier
from server.telephony.dialect import (
    BadCall,
    BadMessage,
    CallEnded,
    CallerAudio,
    DtmfDigit,
    Frame,
    MarkPlayed,
    known_caller,
)
from tests.server.telephony.start_dialect import start_dialect

WEBSOCKET_CARRIERS = [name for name in CARRIERS if name != "audiosocket"]
AUDIO = {"pcmu": bytes(range(160)), "pcm": bytes(range(160)) * 4}


@pytest.mark.parametrize("name", CARRIERS)
def test_a_dialect_and_its_carrier_understand_each_other(name: str) -> None:
    carrier = CARRIERS[name]({"greeting": "Hello", "speed": "1.2"} if name != "audiosocket" else {})
    dialect, started = start_dialect(carrier)
    assert (dialect.name, dialect.encoding, dialect.rate) == (name, carrier.encoding, carrier.rate)
    assert started.call_id or name == "vonage"
    if name != "audiosocket":
        assert (started.parameters["greeting"], started.parameters["speed"]) == ("Hello", "1.2")
    audio = AUDIO[carrier.encoding][: carrier.rate * (2 if carrier.encoding == "pcm" else 1) // 50]
    event = dialect.parse(carrier.audio(audio))
    assert isinstance(event, CallerAudio)
    assert event.data == audio
    assert dialect.parse(carrier.dtmf("7")) == DtmfDigit("7")
    chunk = audio * (dialect.chunk_ms // 20)
    assert carrier.parse(dialect.audio(chunk)) == Play(chunk)
    if (mark := dialect.mark("1.7")) is not None:
        assert carrier.parse(mark) == Mark("1.7")
        reply = carrier.mark_played("1.7")
        assert reply is not None
        assert dialect.parse(reply) == MarkPlayed("1.7")
    if (clear := dialect.clear()) is not None:
        assert carrier.parse(clear) == Clear()
    if (cleared := carrier.cleared()) is not None:
        assert dialect.parse(cleared) is None
    if (stop := carrier.stop()) is not None:
        assert isinstance(dialect.parse(stop), CallEnded)


def with_fields(frame: Frame, **fields: Any) -> str:
    return json.dumps({**json.loads(frame), **fields})


def start_frame(name: str, **audio_format: Any) -> str:
    """A carrier's start message with another audio format."""
    carrier = CARRIERS[name]({})
    message = json.loads(carrier.opening_frames()[-1])
    start = message["start"]
    key = "mediaFormat" if "mediaFormat" in start else "media_format"
    start[key] = {**start[key], **audio_format}
    return json.dumps(message)


@pytest.mark.parametrize(
    "frame",
    [
        start_frame("twilio", encoding="audio/opus"),
        start_frame("twilio", sampleRate=16000),
        start_frame("telnyx", encoding="OPUS"),
        start_frame("telnyx", sample_rate="fast"),
        start_frame("telnyx", sample_rate="7").replace('"7"', "1e999"),
        start_frame("plivo", encoding="audio/x-mulaw", sampleRate=16000),
        start_frame("exotel", sample_rate=44100),
        '{"event": "websocket:connected", "content-type": "audio/opus"}',
        "MEDIA_START connection_id:c1 format:g722",
    ],
)
def test_an_unsupported_codec_ends_the_call_with_the_matching_close_code(frame: str) -> None:
    dialect = detect_carrier(frame)
    assert dialect is not None
    with pytest.raises(BadCall, match="supported are") as refused:
        dialect.parse(frame)
    assert refused.value.code == 1003


@pytest.mark.parametrize("name", WEBSOCKET_CARRIERS)
def test_invalid_messages_are_rejected_one_by_one(name: str) -> None:
    carrier = CARRIERS[name]({})
    dialect, _ = start_dialect(carrier)
    bad: list[Frame] = [
        '{"event": "dance"}',
        '{"event": null}',
        with_fields(carrier.dtmf("1"), dtmf={"digit": "12"}, digit="x"),
        carrier.opening_frames()[-1],
    ]
    if name == "vonage":
        bad += [b"odd"]
    else:
        media = carrier.audio(bytes(320))
        bad += [
            with_fields(media, media={"payload": "%%%"}),
            with_fields(media, media={"payload": 7}),
            with_fields(media, media=[]),
            with_fields(media, media=None),
            with_fields(media, streamSid="another", stream_id="another", streamId="another", stream_sid="another"),
        ]
    for frame in bad:
        with pytest.raises(BadMessage):
            dialect.parse(frame)
    for text in ("{nonsense", '{"event": "\\ud800"}', '{"event": Infinity}', f'{{"event": {"9" * 5000}}}'):
        with pytest.raises(BadCall):
            dialect.parse(text)
    assert isinstance(dialect.parse(carrier.audio(bytes(640))), CallerAudio)


@pytest.mark.parametrize(
    ("payload", "named"),
    [
        ({"code": 100003, "title": "malformed_frame", "detail": "frame from +14155550199"}, "'malformed_frame'"),
        ({"title": "the caller +14155550199 is gone"}, "31 characters"),
        ({"title": "caller-14155550199"}, "18 characters"),
        ("+14155550199", "12 characters"),
        (None, "'None'"),
    ],
)
def test_an_error_of_telnyx_is_named_without_what_it_quotes(payload: object, named: str) -> None:
    dialect, _ = start_dialect(CARRIERS["telnyx"]({}))
    with pytest.raises(BadCall) as ended:
        dialect.parse(json.dumps({"event": "error", "payload": payload}))
    assert str(ended.value) == f"telnyx reports an error: {named}"


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
def test_any_json_message_is_accepted_or_rejected_cleanly(fields: dict[str, Any], event: str) -> None:
    frame = json.dumps({**fields, "event": event})
    dialects = [start_dialect(CARRIERS[name]({}))[0] for name in WEBSOCKET_CARRIERS]
    for dialect in dialects:
        try:
            dialect.parse(frame)
        except (BadMessage, BadCall) as refused:
            assert len(str(refused)) < 300
    try:
        detected = detect_carrier(frame)
        if detected is not None:
            detected.parse(frame)
    except (BadMessage, BadCall):
        pass


@pytest.mark.parametrize("chunk", ["1e999", '"' + "9" * 5000 + '"', '"' + "9" * 400 + '"', "null", "{}"])
def test_audio_whose_number_is_none_has_no_number(chunk: str) -> None:
    carrier = CARRIERS["telnyx"]({})
    dialect, _ = start_dialect(carrier)
    media = json.loads(carrier.audio(bytes(160)))
    frame = json.dumps({**media, "media": {**media["media"], "chunk": "CHUNK"}}).replace('"CHUNK"', chunk)
    assert dialect.parse(frame) == CallerAudio(bytes(160), None)


@pytest.mark.parametrize(
    ("caller", "known"),
    [
        ("+15550100", "+15550100"),
        ("sip:alice@example.org", "sip:alice@example.org"),
        ("", ""),
        ("+266696687", ""),
        ("+86282452253", ""),
        ("7378742833", "7378742833"),  # a number of Texas, as Vonage writes it
        ("Anonymous", ""),
        ("RESTRICTED", ""),
        ("sip:anonymous@anonymous.invalid:5060", ""),
        ('"Anonymous" <sip:anonymous@anonymous.invalid>', ""),
        ("sips:+266696687@example.org", ""),
    ],
)
def test_what_stands_for_a_withheld_number_is_no_caller(caller: str, known: str) -> None:
    assert known_caller(caller) == known
