"""The table of the text API's coverage: made from the parameters of OpenAI's SDK and from what the server does.

`REJOINDER_WRITE_DOCS=1 pytest tests/test_text_coverage.py` writes docs/reference/text-coverage.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.audio.speech_create_params import SpeechCreateParams
from openai.types.audio.transcription_create_params import TranscriptionCreateParamsBase
from openai.types.batch_create_params import BatchCreateParams
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.embedding_create_params import EmbeddingCreateParams
from openai.types.file_create_params import FileCreateParams
from openai.types.responses.response_create_params import ResponseCreateParamsBase

from model.engine.engine import Engine
from tests.coverage_pages import check_page, table
from tests.real_time import HANG_S
from tests.server.chat_completions.test_audio import wav_bytes
from tests.server.live_server import serving

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "text-coverage.md"

NO_EFFECT = "no effect"

QUESTION = [{"role": "user", "content": "hello to you"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
CHAT_TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
TOOL = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}
LINE = b'{"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": {"input": "hello"}}\n'

EFFORT = "numbers and choices are worked out from `low` on, texts checked and revised"
OPENAI_S = "of OpenAI's service"
OLD = "replaced by `tools` and `tool_choice`"
FOREIGN = "the model reads and writes text only"


@dataclass(frozen=True)
class Route:
    """A route of OpenAI's API.

    Attributes:
        method: of the client.
        params: the type of its parameters.
        needed: values of those that every request needs.
        samples: of each other parameter, what else is sent with it, and a note. A parameter that is refused has the
            reason as its note.
    """

    path: str
    method: str
    params: Any
    needed: Mapping[str, Any]
    samples: Mapping[str, tuple[Any, str]]


ROUTES = (
    Route(
        "POST /v1/chat/completions", "chat.completions.create", CompletionCreateParamsBase,
        {"model": "tiny", "messages": QUESTION, "max_tokens": 4},
        {
            "audio": ({"audio": {"voice": "alloy", "format": "wav"}}, FOREIGN),
            "frequency_penalty": (0.5, ""),
            "function_call": ("none", OLD),
            "functions": ([{"name": "weather"}], OLD),
            "logit_bias": ({"5": -10}, "token ids of the model that runs"),
            "logprobs": (True, ""),
            "max_completion_tokens": (4, ""),
            "metadata": ({"a": "b"}, NO_EFFECT),
            "modalities": (["text"], ""),
            "moderation": ({"model": "omni-moderation-latest"}, OPENAI_S),
            "n": (2, "up to 8"),
            "parallel_tool_calls": (True, ""),
            "prediction": ({"type": "content", "content": "hello"}, "drafts are copied from it"),
            "presence_penalty": (0.5, ""),
            "prompt_cache_key": ("k", NO_EFFECT),
            "prompt_cache_options": ({"mode": "implicit"}, OPENAI_S),
            "prompt_cache_retention": ("24h", NO_EFFECT),
            "reasoning_effort": ("low", EFFORT),
            "response_format": (
                {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
                "also choices, grammars, CSV and XML",
            ),
            "safety_identifier": ("u", NO_EFFECT),
            "seed": (1, ""),
            "service_tier": ("auto", NO_EFFECT),
            "stop": (["."], "up to 16"),
            "store": (False, NO_EFFECT),
            "stream_options": ({"stream": True, "stream_options": {"include_usage": True}}, ""),
            "temperature": (0.5, ""),
            "tool_choice": ({"tools": [CHAT_TOOL], "tool_choice": "none"}, ""),
            "tools": ([CHAT_TOOL], "functions"),
            "top_logprobs": ({"logprobs": True, "top_logprobs": 2}, "up to 20"),
            "top_p": (0.5, ""),
            "user": ("u", NO_EFFECT),
            "verbosity": ("low", ""),
            "web_search_options": ({}, "the [assistant's own search](../guide/tools.md) is for conversations"),
        },
    ),
    Route(
        "POST /v1/responses", "responses.create", ResponseCreateParamsBase,
        {"model": "tiny", "input": "hello", "max_output_tokens": 16},
        {
            "access_programs": ([], OPENAI_S),
            "background": (True, "a stream can be cancelled"),
            "background_options": ({}, OPENAI_S),
            "context_management": ([], "`truncation` instead"),
            "conversation": ("conv_1", "`previous_response_id` instead"),
            "image": ({}, FOREIGN),
            "include": (["message.output_text.logprobs"], "log probabilities"),
            "instructions": ("Be brief.", ""),
            "max_tool_calls": (5, "up to 50"),
            "metadata": ({"a": "b"}, ""),
            "moderation": ({"model": "omni-moderation-latest"}, OPENAI_S),
            "parallel_tool_calls": (True, ""),
            "previous_response_id": (None, ""),
            "prompt": ({"id": "p"}, OPENAI_S),
            "prompt_cache_key": ("k", NO_EFFECT),
            "prompt_cache_options": ({"mode": "implicit"}, OPENAI_S),
            "prompt_cache_retention": ("24h", NO_EFFECT),
            "reasoning": ({"effort": "low"}, EFFORT),
            "safety_identifier": ("u", NO_EFFECT),
            "service_tier": ("auto", NO_EFFECT),
            "store": (False, ""),
            "stream_options": ({"stream": True, "stream_options": {"include_obfuscation": False}}, ""),
            "temperature": (0.5, ""),
            "text": ({"verbosity": "low"}, "`format` and `verbosity`"),
            "tool_choice": ({"tools": [TOOL], "tool_choice": "none"}, ""),
            "tools": ([TOOL], "functions and MCP servers"),
            "top_logprobs": (2, "up to 20"),
            "top_p": (0.5, ""),
            "truncation": ("auto", ""),
            "user": ("u", NO_EFFECT),
        },
    ),
    Route(
        "POST /v1/embeddings", "embeddings.create", EmbeddingCreateParams,
        {"model": "rejoinder", "input": ["hello"]},
        {"dimensions": (64, ""), "encoding_format": ("base64", ""), "user": ("u", NO_EFFECT)},
    ),
    Route(
        "POST /v1/files", "files.create", FileCreateParams,
        {"file": ("a.jsonl", LINE), "purpose": "batch"},
        {"expires_after": ({"anchor": "created_at", "seconds": 3600}, "")},
    ),
    Route(
        "POST /v1/batches", "batches.create", BatchCreateParams,
        {"completion_window": "24h", "endpoint": "/v1/responses"},
        {"metadata": ({"a": "b"}, ""), "output_expires_after": ({"anchor": "created_at", "seconds": 3600}, "")},
    ),
    Route(
        "POST /v1/audio/transcriptions", "audio.transcriptions.create", TranscriptionCreateParamsBase,
        {"file": ("a.wav", wav_bytes(1.0)), "model": "whisper-1"},
        {
            "chunking_strategy": ("auto", ""),
            "include": (["logprobs"], ""),
            "keywords": (["Rejoinder"], "`prompt` instead"),
            "known_speaker_names": (["Ann"], "speakers are not told apart"),
            "known_speaker_references": (["data:audio/wav;base64,"], "speakers are not told apart"),
            "language": ("en", ""),
            "languages": (["en"], "`language` instead"),
            "prompt": ("A talk.", ""),
            "response_format": ("verbose_json", "also `srt`, `vtt`, `text` and `json`"),
            "temperature": (0.0, ""),
            "timestamp_granularities": (
                {"response_format": "verbose_json", "timestamp_granularities": ["word"]}, "`word` and `segment`",
            ),
        },
    ),
    Route(
        "POST /v1/audio/speech", "audio.speech.create", SpeechCreateParams,
        {"input": "Hello.", "model": "tts-1", "voice": "alloy"},
        {
            "instructions": ("Speak slowly.", ""),
            "response_format": ("wav", "also `mp3`, `opus`, `aac`, `flac` and `pcm`"),
            "speed": (1.2, ""),
            "stream_format": ("audio", "also `sse`, with the times of words"),
        },
    ),
)  # fmt: skip

CLIENTS: Mapping[str, Mapping[str, str]] = {
    "OpenAI's Python client": {
        "chat completions, streams": "tests/server/chat_completions/test_chat.py",
        "functions, schemas, grammars": "tests/server/chat_completions/test_requests.py",
        "responses": "tests/server/chat_completions/test_responses.py",
        "`reasoning_effort`": "tests/server/chat_completions/test_reasoning.py",
        "`verbosity`": "tests/server/chat_completions/test_verbosity.py",
        "log probabilities, bias and penalties": "tests/server/chat_completions/test_logprobs.py",
        "files and batches: cancelled, and resumed after a restart": "tests/server/batches/test_routes.py",
        "embeddings": "tests/server/search/test_embeddings.py",
        "recordings, `clean`, speech": "tests/server/chat_completions/test_audio.py",
        "long loops over tools of MCP servers": "tests/server/chat_completions/test_response_steps.py",
    },
    "Vercel's AI SDK, LangChain, Cohere's client, unmodified": {
        "text, streams, functions, structured output; rankings": "tests/e2e/test_outside_clients.py",
    },
    "no client: HTTP": {
        "`/v1/rerank` and `/v2/rerank`, as Cohere and Jina describe them": "tests/server/search/test_rerank.py",
        "`/v1/decide`": "tests/server/chat_completions/test_decision.py",
        "`/infill` and FIM": "tests/server/chat_completions/test_suggestion.py",
    },
}


@pytest.fixture
def client(tiny_engine: Engine) -> Iterator[OpenAI]:
    with serving(engine=tiny_engine) as address:
        yield OpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0, timeout=HANG_S)


def values(client: OpenAI, route: Route, name: str) -> dict[str, Any]:
    """What is sent to try a parameter."""
    needed = dict(route.needed)
    if route.path.endswith("batches"):
        needed["input_file_id"] = client.files.create(file=("a.jsonl", LINE), purpose="batch").id
    if name in needed:
        return needed
    if name not in route.samples:
        raise AssertionError(f"the SDK has a new parameter {name} of {route.path}: support it, and add a sample")
    sample = route.samples[name][0]
    if name == "previous_response_id":
        sample = client.responses.create(**needed).id
    return needed | (sample if isinstance(sample, dict) and name in sample else {name: sample})


def is_accepted(client: OpenAI, route: Route, name: str) -> bool:
    """Whether a request with a parameter is answered."""
    method: Any = client
    for part in route.method.split("."):
        method = getattr(method, part)
    sent = values(client, route, name)
    try:
        answer = method(**sent)
        if sent.get("stream"):
            list(answer)
    except openai.BadRequestError:
        return False
    return True


def rows(client: OpenAI, route: Route) -> Iterator[tuple[str, str, str]]:
    """A line for each parameter."""
    for name in route.params.__annotations__:
        accepted, note = is_accepted(client, route, name), route.samples.get(name, (None, ""))[1]
        assert accepted or note, f"{name} of {route.path} is refused, and the table says no reason"
        yield name, "yes" if accepted else "no", note


def page(client: OpenAI) -> str:
    """The whole page."""
    tables = [f"## `{route.path}`\n\n{table('parameter', rows(client, route))}" for route in ROUTES]
    tested = [
        f"| {who} | {what} | [`{path}`](../../{path}) |"
        for who, tests in CLIENTS.items()
        for what, path in tests.items()
    ]
    return "\n".join(
        [
            "# Coverage of the text API",
            "",
            "A test makes this page from the parameters of OpenAI's Python SDK and from what the server does",
            "(`tests/test_text_coverage.py`). [Text API](text-api.md) describes the behaviour and what goes beyond it.",
            "`yes` is a parameter that is accepted; another one is an error 400 that names it.",
            "",
            "## What is tested with which client",
            "",
            "| client | what | tests |",
            "|---|---|---|",
            *tested,
            "",
            "\n\n".join(tables),
            "",
        ]
    )


def test_the_coverage_page_is_up_to_date(client: OpenAI) -> None:
    check_page(PAGE, page(client))


def test_the_tests_that_it_names_exist() -> None:
    assert all((ROOT / path).is_file() for tests in CLIENTS.values() for path in tests.values())
