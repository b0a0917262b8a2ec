"""pipecat's serializers read our simulated carriers and write what our dialects write.

These tests need pipecat-ai, which is not a dependency, and are skipped where it is not installed. If it has its own
environment, run `PYTHONPATH=. ENV/bin/python -m pytest -p no:cacheprovider --noconftest tests/e2e/test_pipecat.py`.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import numpy as np
import pytest

from lab.simulator.carriers import CARRIERS, Carrier
from server.telephony.carriers.detection import detect_carrier
from server.telephony.dialect import CallerAudio, CallStarted, Dialect, DtmfDigit
from voice.audio.codec import decode, encode

pytest.importorskip(
    "pipecat.serializers.twilio",
    reason='pipecat-ai is not installed: pip install --only-binary=:all: -e ".[smart-turn]"',
)

from pipecat.frames.frames import InputAudioRawFrame, InputDTMFFrame, InterruptionFrame, OutputAudioRawFrame
from pipecat.runner.utils import parse_telephony_websocket
from pipecat.serializers.exotel import ExotelFrameSerializer
from pipecat.serializers.plivo import PlivoFrameSerializer
from pipecat.serializers.telnyx import TelnyxFrameSerializer
from pipecat.serializers.twilio import TwilioFrameSerializer
from pipecat.serializers.vonage import VonageFrameSerializer

NAMES = ["twilio", "telnyx", "plivo", "exotel", "vonage"]


def pipecat_serializer(carrier: Carrier) -> Any:
    """pipecat's serializer for a call, at the carrier's own rate so that nothing is resampled."""
    offline = {"auto_hang_up": False}
    match carrier.name:
        case "twilio":
            serializer: Any = TwilioFrameSerializer(
                carrier.stream_id, params=TwilioFrameSerializer.InputParams(**offline)
            )
        case "telnyx":
            law, params = carrier.encoding.upper(), TelnyxFrameSerializer.InputParams(**offline)
            serializer = TelnyxFrameSerializer(carrier.stream_id, law, law, params=params)
        case "plivo":
            serializer = PlivoFrameSerializer(carrier.stream_id, params=PlivoFrameSerializer.InputParams(**offline))
        case "exotel":
            serializer = ExotelFrameSerializer(carrier.stream_id)
        case _:
            serializer = VonageFrameSerializer()
    serializer._sample_rate = carrier.rate
    return serializer


def start_dialect(carrier: Carrier) -> tuple[Dialect, list[str]]:
    frames, dialect = carrier.opening_frames(), None
    for frame in frames:
        dialect = dialect or detect_carrier(frame)
        if dialect is not None and isinstance(dialect.parse(frame), CallStarted):
            return dialect, [str(frame) for frame in frames]
    raise AssertionError("no start event")


def tone(carrier: Carrier, chunk_ms: int = 20) -> bytes:
    count = carrier.rate * chunk_ms // 1000
    return encode((0.4 * np.sin(np.arange(count) / 9)).astype(np.float32), carrier.encoding)


@pytest.mark.parametrize("name", NAMES)
async def test_pipecat_reads_a_simulated_carrier_as_we_do(name: str) -> None:
    carrier = CARRIERS[name]({})
    dialect, _ = start_dialect(carrier)
    frame = carrier.audio(tone(carrier))
    event = dialect.parse(frame)
    assert isinstance(event, CallerAudio)
    read = await pipecat_serializer(carrier).deserialize(frame)
    assert isinstance(read, InputAudioRawFrame)
    ours = np.round(decode(event.data, carrier.encoding) * 32768).astype(np.int16)
    assert np.array_equal(np.frombuffer(read.audio, np.int16), ours)
    pressed = await pipecat_serializer(carrier).deserialize(carrier.dtmf("5"))
    assert isinstance(pressed, InputDTMFFrame)
    assert DtmfDigit(pressed.button.value) == dialect.parse(carrier.dtmf("5"))


@pytest.mark.parametrize("name", NAMES)
async def test_pipecat_writes_what_we_write(name: str) -> None:
    carrier = CARRIERS[name]({})
    dialect, _ = start_dialect(carrier)
    audio = tone(carrier, dialect.chunk_ms)
    linear = np.round(decode(audio, carrier.encoding) * 32768).astype(np.int16).tobytes()
    written = await pipecat_serializer(carrier).serialize(OutputAudioRawFrame(linear, carrier.rate, 1))
    ours = dialect.audio(audio)
    if isinstance(ours, bytes):
        assert written == ours
    else:
        message, expected = json.loads(ours), json.loads(written)
        assert base64.b64decode(message["media"].pop("payload")) == base64.b64decode(expected["media"].pop("payload"))
        if name == "plivo":
            expected.pop("streamId")  # Plivo's reference has none in playAudio
        assert message == expected
    clear = dialect.clear()
    assert clear is not None
    assert json.loads(clear) == json.loads(await pipecat_serializer(carrier).serialize(InterruptionFrame()))


@pytest.mark.parametrize("name", NAMES[:4])
async def test_pipecat_detects_a_simulated_carrier(name: str) -> None:
    carrier = CARRIERS[name]({})
    _, opening_frames = start_dialect(carrier)
    queue: asyncio.Queue[str] = asyncio.Queue()
    for frame in [*opening_frames, str(carrier.audio(tone(carrier)))]:
        queue.put_nowait(frame)

    class FakeWebsocket:
        async def receive_text(self) -> str:
            return await queue.get()

        async def iter_text(self) -> Any:
            while True:
                yield await queue.get()

    kind, data = await parse_telephony_websocket(FakeWebsocket())
    assert kind == name
    assert data["stream_id"] == carrier.stream_id
