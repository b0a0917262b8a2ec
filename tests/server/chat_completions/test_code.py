"""Completions for editors, over HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from model.engine.engine import Engine
from model.engine.fill_in import FillIn
from server.access.admission import Admission
from tests.real_time import HANG_S
from tests.server.live_server import serving

BEFORE, AFTER = "the capital of France ", " and hello to you"


def post(address: str, path: str, **body: Any) -> httpx.Response:
    return httpx.post(f"http://{address}{path}", json=body, timeout=HANG_S)


def filled_in(engine: Engine, before: str, after: str, max_tokens: int) -> str:
    async def collect() -> str:
        found = FillIn(engine).fill_in(before, after, max_tokens=max_tokens)
        return "".join([progress.committed async for progress in found])

    return asyncio.run(collect())


def events(response: httpx.Response) -> list[dict[str, Any]]:
    return [
        json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line.startswith("data: {")
    ]


def test_fim_whole_and_streamed(address: str, tiny_engine: Engine) -> None:
    body = {"prompt": BEFORE, "suffix": AFTER, "max_tokens": 10}
    whole = post(address, "/v1/fim/completions", **body).json()
    assert whole["object"] == "text_completion" and whole["usage"]["completion_tokens"] == 10
    assert whole["choices"][0]["text"] == filled_in(tiny_engine, BEFORE, AFTER, 10) != ""
    parts = events(post(address, "/v1/fim/completions", **body, stream=True, stream_options={"include_usage": True}))
    assert "".join(part["choices"][0]["text"] for part in parts[:-1]) == whole["choices"][0]["text"]
    assert parts[-2]["choices"][0]["finish_reason"] == "length" and parts[-1]["usage"]["completion_tokens"] == 10


def test_fill_ins_and_decisions_count_as_completions(tiny_engine: Engine) -> None:
    admission = Admission()
    with serving(engine=tiny_engine, admission=admission) as address:
        filled = post(address, "/v1/fim/completions", prompt=BEFORE, max_tokens=4).json()["usage"]
        decided = post(address, "/v1/decide", type="boolean", input="hello").json()["usage"]
    used = admission.usage.total
    assert used.completions == 2 and used.output_tokens == filled["completion_tokens"] == 4
    assert used.input_tokens == filled["prompt_tokens"] + decided["prompt_tokens"]


def test_both_sides_of_the_gap_are_read(tiny_engine: Engine) -> None:
    text = filled_in(tiny_engine, BEFORE, AFTER, 10)
    assert text != filled_in(tiny_engine, BEFORE, "", 10) and text != filled_in(tiny_engine, "", AFTER, 10)


def test_of_long_code_the_parts_next_to_the_gap_are_read(tiny_engine: Engine) -> None:
    ends = "hello to you " * 200, " the capital" * 200
    far_away = "Paris " * 4000
    assert filled_in(tiny_engine, far_away + ends[0], ends[1] + far_away, 8) != ""


def test_infill_as_llama_cpp_does_it(address: str, tiny_engine: Engine) -> None:
    body = {"input_prefix": "the capital ", "prompt": "of France ", "input_suffix": AFTER, "n_predict": 10}
    whole = post(address, "/infill", **body, cache_prompt=True, samplers=["top_k"]).json()
    assert whole["content"] == filled_in(tiny_engine, BEFORE, AFTER, 10)
    assert whole["stop"] is True and whole["stop_type"] == "limit" and whole["tokens_predicted"] == 10
    parts = events(post(address, "/infill", **body, stream=True))
    assert "".join(part["content"] for part in parts) == whole["content"]
    assert [part["stop"] for part in parts] == [False] * (len(parts) - 1) + [True]


def test_an_edit_is_a_message(address: str) -> None:
    message = {"role": "user", "content": "<|code_to_edit|>\nx = 1\n<|/code_to_edit|>"}
    edit = post(address, "/v1/edit/completions", messages=[message], max_tokens=6).json()
    assert edit["object"] == "edit.completion"
    assert edit["choices"][0]["message"]["role"] == "assistant" and edit["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/fim/completions", {"suffix": "x"}),
        ("/v1/fim/completions", {"prompt": "x", "max_tokens": 0}),
        ("/v1/edit/completions", {"messages": []}),
        ("/v1/edit/completions", {"messages": [{"role": "user", "content": "x"}], "stream": True}),
        ("/infill", {"input_suffix": "x"}),
    ],
)
def test_bad_requests_get_a_sentence(address: str, path: str, body: dict[str, Any]) -> None:
    response = post(address, path, **body)
    assert response.status_code == 400 and response.json()["error"]["message"]
