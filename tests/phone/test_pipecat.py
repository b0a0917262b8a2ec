"""Outside proof: pipecat's serializers read our simulated carriers and write what our dialects write.

They need pipecat-ai, which is no dependency: skipped where it is not installed. Where it has an environment of its own,
`PYTHONPATH=. its/bin/python -m pytest -p no:cacheprovider --noconftest tests/phone/test_pipecat.py` runs them there.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import numpy as np
import pytest

from server.calling.carriers import CARRIERS, Carrier
from server.phone.dialects import recognised
from server.phone.wire import Dialect, Digit, Sound, Started
from voice.audio import decode, encode

pytest.importorskip("pipecat.serializers.twilio", reason="pipecat-ai is not installed")

from pipecat.frames.frames import InputAudioRawFrame, InputDTMFFrame, InterruptionFrame, OutputAudioRawFrame
from pipecat.runner.utils import parse_telephony_websocket
from pipecat.serializers.exotel import ExotelFrameSerializer
from pipecat.serializers.plivo import PlivoFrameSerializer
from pipecat.serializers.telnyx import TelnyxFrameSerializer
from pipecat.serializers.twilio import TwilioFrameSerializer
from pipecat.serializers.vonage import VonageFrameSerializer

NAMES = ["twilio", "telnyx", "plivo", "exotel", "vonage"]


def theirs(carrier: Carrier) -> Any:
    """pipecat's serializer for a call, at the carrier's own rate so that nothing is resampled."""
    silent = {"auto_hang_up": False}
    match carrier.name:
        case "twilio":
            made: Any = TwilioFrameSerializer(carrier.stream, params=TwilioFrameSerializer.InputParams(**silent))
        case "telnyx":
            law, params = carrier.encoding.upper(), TelnyxFrameSerializer.InputParams(**silent)
            made = TelnyxFrameSerializer(carrier.stream, law, law, params=params)
        case "plivo":
            made = PlivoFrameSerializer(carrier.stream, params=PlivoFrameSerializer.InputParams(**silent))
        case "exotel":
            made = ExotelFrameSerializer(carrier.stream)
        case _:
            made = VonageFrameSerializer()
    made._sample_rate = carrier.rate
    return made


def begun(carrier: Carrier) -> tuple[Dialect, list[str]]:
    frames, dialect = carrier.opening(), None
    for frame in frames:
        dialect = dialect or recognised(frame)
        if dialect is not None and isinstance(dialect.take(frame), Started):
            return dialect, [str(frame) for frame in frames]
    raise AssertionError("no start")


def tone(carrier: Carrier, piece_ms: int = 20) -> bytes:
    count = carrier.rate * piece_ms // 1000
    return encode((0.4 * np.sin(np.arange(count) / 9)).astype(np.float32), carrier.encoding)


@pytest.mark.parametrize("name", NAMES)
async def test_pipecat_hears_of_a_simulated_carrier_what_we_hear(name: str) -> None:
    carrier = CARRIERS[name]({})
    dialect, _ = begun(carrier)
    frame = carrier.sound(tone(carrier))
    heard = dialect.take(frame)
    assert isinstance(heard, Sound)
    read = await theirs(carrier).deserialize(frame)
    assert isinstance(read, InputAudioRawFrame)
    ours = np.round(decode(heard.data, carrier.encoding) * 32768).astype(np.int16)
    assert np.array_equal(np.frombuffer(read.audio, np.int16), ours)
    pressed = await theirs(carrier).deserialize(carrier.digit("5"))
    assert isinstance(pressed, InputDTMFFrame)
    assert Digit(pressed.button.value) == dialect.take(carrier.digit("5"))


@pytest.mark.parametrize("name", NAMES)
async def test_pipecat_writes_what_we_write(name: str) -> None:
    carrier = CARRIERS[name]({})
    dialect, _ = begun(carrier)
    sound = tone(carrier, dialect.piece_ms)
    linear = np.round(decode(sound, carrier.encoding) * 32768).astype(np.int16).tobytes()
    written = await theirs(carrier).serialize(OutputAudioRawFrame(linear, carrier.rate, 1))
    ours = dialect.sound(sound)
    if isinstance(ours, bytes):
        assert written == ours
    else:
        said, expected = json.loads(ours), json.loads(written)
        assert base64.b64decode(said["media"].pop("payload")) == base64.b64decode(expected["media"].pop("payload"))
        if name == "plivo":
            expected.pop("streamId")  # Plivo's own reference has none in playAudio
        assert said == expected
    clear = dialect.clear()
    assert clear is not None
    assert json.loads(clear) == json.loads(await theirs(carrier).serialize(InterruptionFrame()))


@pytest.mark.parametrize("name", NAMES[:4])
async def test_pipecat_recognises_a_simulated_carrier(name: str) -> None:
    carrier = CARRIERS[name]({})
    _, opening = begun(carrier)
    waiting: asyncio.Queue[str] = asyncio.Queue()
    for frame in [*opening, str(carrier.sound(tone(carrier)))]:
        waiting.put_nowait(frame)

    class FakeWebsocket:
        async def receive_text(self) -> str:
            return await waiting.get()

        async def iter_text(self) -> Any:
            while True:
                yield await waiting.get()

    kind, data = await parse_telephony_websocket(FakeWebsocket())
    assert kind == name
    assert data["stream_id"] == carrier.stream
