"""Bytes from outside, made at random: every decoder raises the error that it declares, and nothing else.

40 of each in CI, 10 elsewhere. `REJOINDER_FUZZ=100000 pytest tests/test_fuzz.py` runs that many examples of each, and
`python -m lab.benchmarks.fuzz` looks for inputs that reach new code.
"""

from __future__ import annotations

import base64
import io
import json
import os
import wave
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from safetensors.torch import save
from tokenizers import Tokenizer, models

from agent.documents.readers import UnreadableDocument, parse
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
from tests.agent.documents.sample_documents import HOUSE, PAGE, write_docx, write_pdf
from tests.fakes import run_on_virtual_clock
from tests.server.realtime.conversation_client import Client
from voice.audio.codec import BadAudio, decode

EXAMPLES = int(os.environ.get("REJOINDER_FUZZ", "0")) or (40 if "CI" in os.environ else 10)

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


TOKENS = ["H", "i", "Hi", "!", "<|im_end|>"]
MERGES = ["H i"]


def gguf_file() -> bytes:
    """A tiny model file: what a decoder's configuration and its tokenizer need, and tensors of two types."""
    with NamedTemporaryFile(suffix=".gguf") as file:
        writer = gguf.GGUFWriter(file.name, "llama")
        writer.add_embedding_length(4)
        for add in (writer.add_block_count, writer.add_head_count, writer.add_head_count_kv):
            add(2)
        writer.add_context_length(64)
        writer.add_feed_forward_length(8)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(10_000.0)
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_list(TOKENS)
        writer.add_token_scores([0.0] * len(TOKENS))
        writer.add_token_types([gguf.TokenType.NORMAL] * 4 + [gguf.TokenType.CONTROL])
        writer.add_token_merges(MERGES)
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(4)
        writer.add_chat_template("{{ messages[0].content }}")
        writer.add_custom_alignment(32)
        writer.add_tensor("blk.0.attn_q.weight", np.ones((4, 4), np.float32))
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor("token_embd.weight", gguf.quants.quantize(np.ones((2, 32), np.float32), kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return Path(file.name).read_bytes()


@cache
def checkpoint_files() -> dict[str, bytes]:
    """A tiny checkpoint folder."""
    config = {
        "architectures": ["SDARForCausalLM"], "model_type": "sdar", "hidden_size": 4, "num_attention_heads": 2,
        "vocab_size": 5, "num_hidden_layers": 1, "num_key_value_heads": 1, "head_dim": 2, "intermediate_size": 8,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "block_size": 4, "mask_token_id": 3, "eos_token_id": 4,
        "use_sliding_window": False, "layer_types": ["full_attention"], "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 32,
            "beta_fast": 32, "beta_slow": 1, "truncate": True,
        },
    }  # fmt: skip
    tokenizer = Tokenizer(models.BPE({token: n for n, token in enumerate(TOKENS)}, [("H", "i")]))
    tokenizer.add_special_tokens(TOKENS[-1:])
    special = {"bos_token": "H", "eos_token": {"content": "<|im_end|>"}, "mask_token": "!", "chat_template": "{{ 1 }}"}
    tensors = {
        "model.embed_tokens.weight": torch.ones(5, 4),
        "model.layers.0.self_attn.q_proj.weight": torch.ones(4, 4),
    }
    name = "model-00001-of-00001.safetensors"
    return {
        "config.json": json.dumps(config).encode(),
        "generation_config.json": b'{"eos_token_id": [4]}',
        "tokenizer_config.json": json.dumps(special).encode(),
        "tokenizer.json": tokenizer.to_str().encode(),
        "model.safetensors.index.json": json.dumps({"weight_map": dict.fromkeys(tensors, name)}).encode(),
        name: save(tensors),
    }


def read_model(path: Path, guard: Callable[[], AbstractContextManager[Any]]) -> None:
    """Read all that a checkpoint holds, each part under a guard."""
    with guard():
        checkpoint = open_checkpoint(path)
        for read in (checkpoint.rope, checkpoint.template_tokens, checkpoint.stop_tokens, checkpoint.chat_template):
            with guard():
                read()
        for name in ("embed_tokens.weight", "layers.0.self_attn.q_proj.weight"):
            with guard():
                checkpoint.tensor(name)
            with guard():
                checkpoint.blocks(name)
        with guard():
            tokenizer = checkpoint.tokenizer()
            tokenizer.decode([*tokenizer.encode("Hi!"), *tokenizer.encode_template("Hi<|im_end|>")])
            for token in range(len(TOKENS)):
                tokenizer.token_bytes(token)


def bad_model_files() -> AbstractContextManager[Any]:
    return suppress(BadModelFile)


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
        read_model(path, bad_model_files)


@st.composite
def changed_json(draw: st.DrawFn, valid: bytes) -> bytes:
    """A JSON object with other values, in itself and in the objects that it has."""
    changed = json.loads(valid)
    for _ in range(draw(st.integers(1, 3))):
        inside = changed
        while True:
            key = draw(st.sampled_from(sorted(inside)))
            if not (isinstance(inside[key], dict) and inside[key] and draw(st.booleans())):
                break
            inside = inside[key]
        inside[key] = draw(st.sampled_from([0, -1, 1 << 40, 1e400, "", "..", [[]], {"a": []}]) | JSON)
    return json.dumps(changed).encode()


@st.composite
def checkpoint_folders(draw: st.DrawFn) -> dict[str, bytes]:
    """A checkpoint folder in which one file is not as it should be."""
    files = checkpoint_files()
    name = draw(st.sampled_from(sorted(files)))
    changes = mutated([files[name]])
    return {**files, name: draw(changed_json(files[name]) | changes if name.endswith(".json") else changes)}


def write_files(folder: str, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (Path(folder) / name).write_bytes(data)
    return Path(folder)


@fuzz
@given(checkpoint_folders())
def test_a_checkpoint_folder_is_read_or_bad(files: dict[str, bytes]) -> None:
    with TemporaryDirectory() as folder:
        read_model(write_files(folder, files), bad_model_files)


def test_the_models_that_are_changed_can_be_read(tmp_path: Path) -> None:
    """If they could not, the changes would test nothing."""
    (tmp_path / "model.gguf").write_bytes(gguf_file())
    read_model(tmp_path / "model.gguf", nullcontext)
    (tmp_path / "model").mkdir()
    read_model(write_files(str(tmp_path / "model"), checkpoint_files()), nullcontext)


def sample_documents() -> dict[str, bytes]:
    """A document of each kind, by its suffix."""
    with TemporaryDirectory() as folder:
        write_docx(Path(folder) / "a.docx")
        write_pdf(Path(folder) / "a.pdf", ["Press the green button.", "Wait."], "Coffee machine")
        files = {path.suffix: path.read_bytes() for path in Path(folder).iterdir()}
    return {**files, ".html": PAGE.encode(), ".md": HOUSE.encode(), ".txt": HOUSE.encode("utf-16")}


@pytest.mark.parametrize("suffix", sorted(sample_documents()))
def test_a_document_is_read_or_unreadable(suffix: str) -> None:
    document_target(suffix)()


def document_target(suffix: str) -> Callable[[], None]:
    """A property of one kind of documents."""
    path, valid = Path(f"a{suffix}"), sample_documents()[suffix]
    assert parse(path, valid).blocks

    @fuzz
    @given(mutated([valid]) | st.binary(max_size=60))
    def run(data: bytes) -> None:
        with suppress(UnreadableDocument):
            assert parse(path, data).blocks

    return run


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
    "model folders": test_a_checkpoint_folder_is_read_or_bad,
    **{f"documents ({suffix})": document_target(suffix) for suffix in sorted(sample_documents())},
    "samples": test_samples_are_finite_or_bad_audio,
    "completion requests": test_a_completion_request_is_valid_or_not,
    "signatures of carriers": test_no_forged_request_is_a_carriers,
    "the configuration file": test_a_configuration_is_valid_or_bad,
    "lines of the log": test_a_key_never_reaches_the_log,
}
"""For `lab/benchmarks/fuzz.py`."""
