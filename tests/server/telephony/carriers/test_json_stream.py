"""Telnyx: A-law calls, and the direction of audio."""

from __future__ import annotations

import base64
import json

from lab.simulator.carriers import CARRIERS
from tests.server.telephony.start_dialect import start_dialect


def test_a_call_may_use_a_law() -> None:
    carrier = CARRIERS["telnyx"]({})
    carrier.encoding = "pcma"
    assert start_dialect(carrier)[0].encoding == "pcma"


def test_outbound_audio_is_not_taken_for_the_callers() -> None:
    carrier = CARRIERS["telnyx"]({})
    dialect, _ = start_dialect(carrier)
    media = {"track": "outbound", "payload": base64.b64encode(bytes(160)).decode()}
    assert dialect.parse(json.dumps({**json.loads(carrier.audio(bytes(160))), "media": media})) is None
