"""Bytes from outside, made at random: every decoder raises the error that it declares, and nothing else.

Short in CI. `REJOINDER_FUZZ=100000 pytest tests/test_fuzz.py` runs that many examples of each, and
`python -m lab.benchmarks.fuzz` looks for inputs that reach new code.
"""

from __future__ import annotations

import base64
import io
import json
import os
import wave
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agent.documents.readers import READERS, UnreadableDocument, parse
from lab.simulator.carriers import CARRIERS
from model.checkpoint.checkpoint import open_checkpoint
from model.checkpoint.gguf import BadModelFile, GGUFFile
from server.chat_completions import decoder_process
from server.chat_completions.schema import ChatCompletionRequest
from server.observability.logs import Redactor
from server.realtime.events import CLIENT_EVENT
from server.serving.config_file import BadConfig, ConfigFile
from server.telephony.auth import CarrierAuth, CarrierRequest
from server.telephony.carriers.audiosocket import AudioSocket
from server.telephony.carriers.detection import detect_carrier
from server.telephony.dialect import BadCall, BadMessage, Dialect, Frame
from tests.agent.documents.sample_documents import write_docx
from tests.fakes import run_on_virtual_clock
from tests.server.realtime.conversation_client import Client
from voice.audio.codec import BadAudio, decode

EXAMPLES = int(os.environ.get("REJOINDER_FUZZ", "0")) or 40

fuzz = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)

EVENT_TYPES = [
    "session.update",
    "input_audio_buffer.append",
    "input_audio_buffer.commit",
    "conversation.item.create",
    "conversation.item.truncate",
    "conversation.item.delete",
    "response.create",
    "response.cancel",
    "rejoinder.dtmf",
]

FIELDS = st.sampled_from(
    "session item item_id audio response type content event_id audio_end_ms content_index digit tools include".split()
)

EVENTS = st.fixed_dictionaries({"type": st.sampled_from(EVENT_TYPES) | st.text(max_size=10)}).flatmap(
    lambda event: st.dictionaries(FIELDS, JSON, max_size=4).map(lambda fields: {**fields, **event})
)


def sample_docx() -> bytes:
    with NamedTemporaryFile(suffix=".docx") as file:
        write_docx(Path(file.name))
        return Path(file.name).read_bytes()


@st.composite
def mutated(draw: st.DrawFn, valid: list[bytes]) -> bytes:
    """A valid message with some of its bytes changed, cut out or repeated."""
    data = bytearray(draw(st.sampled_from(valid)))
    for _ in range(draw(st.integers(1, 4))):
        if not data:
            break
        start = draw(st.integers(0, len(data) - 1))
        end = draw(st.integers(start, min(len(data), start + 40)))
        data[start:end] = draw(st.binary(max_size=8) | st.just(bytes(data[start:end]) * 2))
    return bytes(data)


def wav_file() -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(range(256)) * 8)
    return buffer.getvalue()


@fuzz
@given(st.lists(EVENTS.map(json.dumps) | JSON.map(json.dumps) | st.text(max_size=40), min_size=1, max_size=4))
def test_a_conversation_survives_any_text_frames(frames: list[str]) -> None:
    async def run() -> Client:
        client = Client()
        for frame in frames:
            await client.conversation.receive(frame)
        await client.send("conversation.item.retrieve", item_id="nobody")
        client.conversation.record("key").encode()
        await client.conversation.close()
        return client

    client = run_on_virtual_clock(run)
    assert client.error["code"] == "item_retrieve_invalid_item_id"
    assert not [event for event in client.events if event.get("error", {}).get("code") == "internal_error"]


@pytest.mark.parametrize("frame", ['{"type": "\\ud800"}', '{"type": NaN}', f'{{"type": {"9" * 5000}}}'])
def test_an_event_that_is_no_json_is_refused(frame: str) -> None:
    async def run() -> Client:
        client = Client()
        await client.conversation.receive(frame)
        await client.conversation.close()
        return client

    assert run_on_virtual_clock(run).error["code"] == "invalid_json"


@fuzz
@given(EVENTS)
def test_an_event_is_valid_or_says_which_field_is_not(event: dict[str, Any]) -> None:
    try:
        CLIENT_EVENT.validate_python(event)
    except ValidationError as error:
        assert error.errors(include_url=False)


def carrier_frames(name: str) -> list[Frame]:
    """Frames that a carrier sends."""
    carrier = CARRIERS[name]({"greeting": "Hello"})
    frames = [*carrier.opening_frames(), carrier.audio(bytes(160)), carrier.dtmf("5"), carrier.stop()]
    return [frame for frame in frames if frame is not None]


def carrier_target(name: str) -> Callable[[], None]:
    """A property of one carrier's frames."""
    frames = carrier_frames(name)
    valid = [frame.encode() if isinstance(frame, str) else frame for frame in frames]
    is_text = [isinstance(frame, str) for frame in frames]

    def new_dialect() -> Dialect:
        if name == "audiosocket":
            return AudioSocket()
        for frame in frames:
            if (dialect := detect_carrier(frame)) is not None:
                dialect.parse(frame)
                return dialect
        raise AssertionError(name)

    @fuzz
    @given(mutated(valid) | st.binary(min_size=3, max_size=60))
    def run(data: bytes) -> None:
        dialect = new_dialect()
        for frame in (data, data.decode("utf-8", "replace")) if any(is_text) else (data,):
            with suppress(BadMessage, BadCall):
                dialect.parse(frame)
            if name != "audiosocket":
                with suppress(BadMessage, BadCall):
                    detect_carrier(frame)

    return run


@pytest.mark.parametrize("name", sorted(CARRIERS))
def test_a_carriers_frames_are_events_or_bad_messages(name: str) -> None:
    carrier_target(name)()


@fuzz
@given(mutated([wav_file()]) | st.binary(max_size=200))
def test_a_recording_is_audio_or_has_a_status(data: bytes) -> None:
    status = decoder_process.decode(data, 16_000, io.BytesIO())
    assert status in (0, decoder_process.UNREADABLE, decoder_process.NO_AUDIO)


def gguf_file() -> bytes:
    """A tiny model file: what a decoder's configuration needs, an array, and tensors of two types."""
    with NamedTemporaryFile(suffix=".gguf") as file:
        writer = gguf.GGUFWriter(file.name, "llama")
        for add in (writer.add_embedding_length, writer.add_block_count, writer.add_head_count):
            add(4)
        writer.add_context_length(64)
        writer.add_feed_forward_length(8)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_token_list(["a", "b", "c"])
        writer.add_custom_alignment(32)
        writer.add_tensor("floats", np.ones((3, 4), np.float32))
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor("blocks", gguf.quants.quantize(np.ones((2, 32), np.float32), kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return Path(file.name).read_bytes()


@fuzz
@given(mutated([gguf_file()]))
def test_a_model_file_is_read_or_bad(data: bytes) -> None:
    with NamedTemporaryFile(suffix=".gguf") as file:
        file.write(data)
        file.flush()
        path = Path(file.name)
        with suppress(BadModelFile):
            opened = GGUFFile(path)
            for name in opened.tensor_names:
                opened.tensor(name)
                opened.blocks(name)
        with suppress(BadModelFile):
            checkpoint = open_checkpoint(path)
            for read in (checkpoint.tokenizer, checkpoint.rope, checkpoint.template_tokens, checkpoint.stop_tokens):
                with suppress(BadModelFile):
                    read()


@fuzz
@given(mutated([sample_docx()]) | st.binary(max_size=60), st.sampled_from(sorted(READERS)))
def test_a_document_is_read_or_unreadable(data: bytes, suffix: str) -> None:
    with NamedTemporaryFile(suffix=suffix) as file:
        file.write(data)
        file.flush()
        with suppress(UnreadableDocument):
            assert parse(Path(file.name), data).blocks


@fuzz
@given(st.binary(max_size=200), st.sampled_from(["pcm", "pcmu", "pcma"]))
def test_samples_are_finite_or_bad_audio(data: bytes, encoding: Any) -> None:
    try:
        samples = decode(data, encoding)
    except BadAudio:
        return
    assert abs(samples).max(initial=0.0) <= 1.0


@fuzz
@given(JSON.map(json.dumps).map(str.encode) | mutated([b'{"messages": [{"role": "user", "content": "Hi"}], "n": 2}']))
def test_a_completion_request_is_valid_or_not(body: bytes) -> None:
    with suppress(ValidationError):
        ChatCompletionRequest.model_validate_json(body)


@fuzz
@given(
    st.dictionaries(st.sampled_from(["authorization", "x-twilio-signature", "telnyx-timestamp"]), st.text(max_size=30)),
    st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
    st.text(max_size=30),
)
def test_no_forged_request_is_a_carriers(headers: dict[str, str], form: dict[str, str], ticket: str) -> None:
    auth = CarrierAuth("twilio", "plivo", base64.b64encode(bytes(32)).decode(), ("secret-of-the-operator",))
    request = CarrierRequest("POST", ["https://phone.example.org/phone"], headers, {}, form, b"body", ticket)
    assert not auth.accepts(request)


@fuzz
@given(mutated([b"[serve]\nport = 1\n[prices]\nminute = 1\n[prices.hosted]\ncpu_hour = 2\n"]))
def test_a_configuration_is_valid_or_bad(data: bytes) -> None:
    with NamedTemporaryFile(suffix=".toml") as file:
        file.write(data)
        file.flush()
        with suppress(BadConfig):
            ConfigFile(Path(file.name)).prices()


@fuzz
@given(st.text(max_size=30), st.text(max_size=30))
def test_a_key_never_reaches_the_log(before: str, after: str) -> None:
    key = "rj_Zp0xJm3bq-9sLkq2v7eYt8nWc5aHd1uRf4gXo6iTzEM"
    assert "Lkq2v7eYt8nW" not in Redactor()(f"{before} {key} {after}")


TARGETS: dict[str, Any] = {
    "events of a conversation": test_a_conversation_survives_any_text_frames,
    "one event": test_an_event_is_valid_or_says_which_field_is_not,
    **{f"frames of {name}": carrier_target(name) for name in sorted(CARRIERS)},
    "audio files": test_a_recording_is_audio_or_has_a_status,
    "model files": test_a_model_file_is_read_or_bad,
    "documents": test_a_document_is_read_or_unreadable,
    "samples": test_samples_are_finite_or_bad_audio,
    "completion requests": test_a_completion_request_is_valid_or_not,
    "signatures of carriers": test_no_forged_request_is_a_carriers,
    "the configuration file": test_a_configuration_is_valid_or_bad,
    "lines of the log": test_a_key_never_reaches_the_log,
}
"""For `lab/benchmarks/fuzz.py`."""
