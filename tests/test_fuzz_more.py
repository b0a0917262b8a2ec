"""More bytes from outside, made at random, as in `test_fuzz.py`: compressed recordings, requests, files that go with a
model, and lists of tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from safetensors.torch import save
from starlette.exceptions import HTTPException
from starlette.requests import Request

from agent.tools.invented_arguments import invented_argument
from agent.tools.mcp_tool import is_readable_schema
from agent.tools.tool_selection import MAX_TOOLS, ToolSelection
from chat.types import Message, Tool
from model.checkpoint.checkpoint import DecoderConfig
from model.checkpoint.gguf import BadModelFile, GGUFFile
from model.nn.block_drafter import load_drafter
from model.nn.trained_prefix import load_trained_prefix
from server.api_errors import APIError
from server.batches.request_lines import check_lines
from server.batches.routes import _check_fields
from server.budgets import BATCH_UPLOAD
from server.chat_completions import decoder_process
from server.chat_completions.audio_files import SpeechEncoder, SpeechFormat
from server.request_body import limited
from server.search.embeddings import EmbeddingRequest
from server.search.rerank import RerankRequest
from tests.test_fuzz import JSON, changed_json, fuzz, mutated

CONFIG = DecoderConfig("qwen2", "model", 8, 16, 1, 2, 1, 8, 16, 64, 1e-6)


def recording(kind: SpeechFormat) -> bytes:
    encoder = SpeechEncoder(kind)
    return encoder.push(np.sin(np.arange(2400, dtype=np.float32) / 9)) + encoder.finish()


RECORDINGS = [recording(kind) for kind in ("opus", "mp3", "aac", "flac")]


@fuzz
@given(mutated(RECORDINGS))
def test_a_compressed_recording_is_audio_or_has_a_status(data: bytes) -> None:
    status = decoder_process.decode(data, 16_000, BytesIO())
    assert status in (0, decoder_process.UNREADABLE, decoder_process.NO_AUDIO)


LINE = b'{"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": {"input": "Hi", "n": [1, {}]}}'
RERANK = (
    b'{"query": "a", "documents": ["b", {"text": "c", "title": "d"}], "rank_fields": ["text", "title"], "top_n": 1}'
)
EMBED = b'{"input": ["a", "b"], "encoding_format": "base64", "dimensions": 3}'


@fuzz
@given(mutated([LINE]) | changed_json(LINE) | st.binary(max_size=60))
def test_a_line_of_a_batch_is_a_request_or_an_error(data: bytes) -> None:
    _, errors = check_lines([(1, data)], "/v1/responses", set())
    assert json.dumps(errors).encode()


@fuzz
@given(mutated([RERANK, EMBED]) | changed_json(RERANK) | changed_json(EMBED))
def test_a_search_request_is_valid_or_not(data: bytes) -> None:
    with suppress(ValidationError, APIError):
        assert all(isinstance(passage, str) for passage in RerankRequest.model_validate_json(data).passages())
    with suppress(ValidationError):
        EmbeddingRequest.model_validate_json(data)


FORM = (
    b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x\r\nContent-Disposition: form-data; '
    b'name="expires_after[seconds]"\r\n\r\n3600\r\n--x\r\nContent-Disposition: form-data; name="file"; '
    b'filename="a.jsonl"\r\nContent-Type: application/jsonl\r\n\r\n{}\r\n--x--\r\n'
)


@fuzz
@given(mutated([FORM]), st.sampled_from([b"multipart/form-data; boundary=x", b"multipart/form-data; boundary="]))
def test_a_form_is_read_or_refused(body: bytes, kind: bytes) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def run() -> None:
        scope = {"type": "http", "method": "POST", "headers": [(b"content-type", kind)], "app": None}
        with limited(Request(scope, receive), BATCH_UPLOAD) as counted:
            async with counted.form(max_files=1, max_fields=8) as form:
                _check_fields({name: value for name, value in form.multi_items() if isinstance(value, str)})

    with suppress(HTTPException, APIError):
        asyncio.run(run())


TYPES = [torch.int8, torch.int32, torch.float16, torch.float32, torch.bool]
PREFIX = {"tokens": (2,), "keys": (1, 1, 2, 8), "values": (1, 1, 2, 8), "keys.scale": (1, 1, 1, 8),
          "values.scale": (1, 1, 1, 8)}  # fmt: skip
DRAFTER: dict[str, tuple[int, ...]] = dict.fromkeys(
    "features input gate_up down output masks places mix gate_up0 down0 heads0 attention0".split(), (4, 4)
)
SCALES = {f"{name}.scale": (4,) for name in DRAFTER}


@st.composite
def bound_files(draw: st.DrawFn, shapes: dict[str, tuple[int, ...]]) -> bytes:
    """A file with some of the tensors in their shape, and others in another one."""
    tensors = {}
    for name, usual in shapes.items():
        shape = draw(st.just(usual) | st.lists(st.integers(0, 4), max_size=4).map(tuple))
        if draw(st.integers(0, 9)):
            tensors[name] = torch.full(shape, draw(st.integers(-2, 9))).to(draw(st.sampled_from(TYPES)))
    return save(tensors, {"base_sha256": "base"})


def bound_target(shapes: dict[str, tuple[int, ...]], load: Callable[[Path, DecoderConfig, str], Any]) -> Any:
    valid = save({name: torch.zeros(shape) for name, shape in shapes.items()}, {"base_sha256": "base"})

    @fuzz
    @given(bound_files(shapes) | mutated([valid]))
    def run(data: bytes) -> None:
        with TemporaryDirectory() as folder, suppress(BadModelFile):
            path = Path(folder) / "a.safetensors"
            path.write_bytes(data)
            load(path, CONFIG, "base")

    return run


BOUND = {
    "trained prefixes": bound_target(PREFIX, load_trained_prefix),
    "drafters": bound_target({**DRAFTER, **SCALES, "vocabulary": (3,)}, load_drafter),
}


@pytest.mark.parametrize("kind", BOUND)
def test_a_file_for_a_model_fits_or_is_bad(kind: str) -> None:
    BOUND[kind]()


def quantized_file() -> bytes:
    """A model file with a tensor of each quantized type."""
    with NamedTemporaryFile(suffix=".gguf") as file:
        writer = gguf.GGUFWriter(file.name, "llama")
        for name in ("Q4_0", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"):
            kind = gguf.GGMLQuantizationType[name]
            size, width = gguf.GGML_QUANT_SIZES[kind]
            writer.add_tensor(name, np.ones((2, 256 // size * width), np.uint8), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return Path(file.name).read_bytes()


@fuzz
@given(mutated([quantized_file()]))
def test_quantized_tensors_are_read_or_bad(data: bytes) -> None:
    with NamedTemporaryFile(suffix=".gguf") as file, suppress(BadModelFile):
        file.write(data)
        file.flush()
        opened = GGUFFile(Path(file.name))
        for name in opened.tensor_names:
            assert opened.tensor(name).shape[-1] == opened.blocks(name).shape[1]


KEYWORDS = st.sampled_from("type properties items enum description format id email a".split())
SCHEMAS = st.recursive(
    JSON, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=4), max_leaves=12
)


@fuzz
@given(st.dictionaries(KEYWORDS, SCHEMAS, max_size=4), JSON, st.text(max_size=20))
def test_a_tool_of_another_server_can_be_selected_and_checked_or_is_left_out(
    schema: dict[str, Any], value: Any, text: str
) -> None:
    if is_readable_schema(schema):
        tools = [Tool(f"{text}{n}", text, schema) for n in range(MAX_TOOLS + 1)]
        ToolSelection().select(tools, [Message("user", text)])
        invented_argument(json.dumps({"id": value, "a": [value], "email": {"id": value}}), schema, text)


TARGETS: dict[str, Any] = {
    "compressed recordings": test_a_compressed_recording_is_audio_or_has_a_status,
    "lines of batches": test_a_line_of_a_batch_is_a_request_or_an_error,
    "search requests": test_a_search_request_is_valid_or_not,
    "forms": test_a_form_is_read_or_refused,
    **BOUND,
    "quantized tensors": test_quantized_tensors_are_read_or_bad,
    "tools of other servers": test_a_tool_of_another_server_can_be_selected_and_checked_or_is_left_out,
}
"""For `lab/benchmarks/fuzz.py`."""
