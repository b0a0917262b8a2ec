"""Detecting the carrier: first frames that belong to none. `test_dialect.py` covers those that do."""

from __future__ import annotations

import pytest

from server.telephony.carriers.detection import detect_carrier
from server.telephony.dialect import BadCall, Frame


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
def test_a_first_frame_of_no_known_carrier_is_refused(frame: Frame, code: int) -> None:
    with pytest.raises(BadCall) as refused:
        detect_carrier(frame)
    assert refused.value.code == code
    assert len(str(refused.value)) < 300
