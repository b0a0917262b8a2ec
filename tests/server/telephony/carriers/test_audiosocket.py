"""AudioSocket: sample rates, and frames that end the call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.telephony.carriers.audiosocket import AudioSocket
from server.telephony.dialect import BadCall, BadMessage, CallStarted, Frame


@pytest.mark.parametrize("frame_type", [0x10, 0x12, 0x13])
def test_the_first_audio_frame_gives_the_sample_rate(frame_type: int) -> None:
    dialect = AudioSocket()
    assert dialect.parse(b"\x01\x00\x10" + bytes(range(16))) is None
    started = dialect.parse(bytes([frame_type]) + b"\x01\x40" + bytes(320))
    assert started == CallStarted("00010203-0405-0607-0809-0a0b0c0d0e0f")
    assert dialect.rate == {0x10: 8000, 0x12: 16_000, 0x13: 24_000}[frame_type]
    assert dialect.audio(bytes(320)) == bytes([frame_type]) + b"\x01\x40" + bytes(320)
    assert dialect.hang_up() == b"\x00\x00\x00"


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x01\x00\x02ab", 1007),
        (b"\xff\x00\x01\x01", 1011),
        (b"\x10\x00\x02ab", 1008),
        ("text", 1007),
    ],
)
def test_an_invalid_first_frame_is_refused(frame: Frame, code: int) -> None:
    with pytest.raises(BadCall) as refused:
        AudioSocket().parse(frame)
    assert refused.value.code == code


def test_an_unsupported_sample_rate_is_refused() -> None:
    dialect = AudioSocket()
    dialect.parse(b"\x01\x00\x10" + bytes(16))
    with pytest.raises(BadCall) as refused:
        dialect.parse(b"\x15\x00\x02ab")
    assert refused.value.code == 1003


@given(st.binary(max_size=40))
def test_any_bytes_are_accepted_or_rejected_cleanly(data: bytes) -> None:
    dialect = AudioSocket()
    for frame in (b"\x01\x00\x10" + bytes(16), data, data):
        try:
            dialect.parse(frame)
        except (BadMessage, BadCall):
            return
