"""Chat completions, as the official client sees them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from chat.types import Message
from model.engine.engine import Engine
from server.access.admission import Admission
from server.chat_completions.generation import new_conversation
from server.chat_completions.routes import MAX_COMPLETIONS
from tests.model.dialogues import collect_progress, committed_text, held
from tests.real_time import HANG_S, wait_until
from tests.server.live_server import serving

QUESTION: list[Any] = [{"role": "system", "content": "the capital"}, {"role": "user", "content": "hello to you"}]


def expected_text(engine: Engine, max_tokens: int) -> str:
    messages = [Message(message["role"], message["content"]) for message in QUESTION]
    return committed_text(
        asyncio.run(collect_progress(new_conversation(engine), *messages, max_tokens=max_tokens))  # type: ignore[arg-type]
    )


def test_a_completion_is_what_the_model_says(client: OpenAI, tiny_engine: Engine) -> None:
    completion = client.chat.completions.create(model="tiny", messages=QUESTION, max_completion_tokens=12)
    (choice,) = completion.choices
    assert choice.message.content == expected_text(tiny_engine, 12) != ""
    assert choice.message.role == "assistant" and choice.finish_reason == "length"
    usage = completion.usage
    assert usage is not None and usage.completion_tokens == 12
    assert usage.total_tokens == usage.prompt_tokens + 12 and usage.prompt_tokens > 5
    extension = usage.model_extra["rejoinder"]  # type: ignore[index]
    assert 0 < extension["forward_passes"] <= 12
    assert extension["tokens_per_forward"] == round(12 / extension["forward_passes"], 3)


def test_a_stream_adds_up_to_the_completion(client: OpenAI, tiny_engine: Engine) -> None:
    chunks = list(
        client.chat.completions.create(
            model="rejoinder", messages=QUESTION, max_tokens=12, stream=True, stream_options={"include_usage": True}
        )
    )
    *parts, last = chunks
    assert "".join(chunk.choices[0].delta.content or "" for chunk in parts) == expected_text(tiny_engine, 12)
    assert parts[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in parts if chunk.choices[0].finish_reason] == ["length"]
    assert not last.choices and last.usage is not None and last.usage.completion_tokens == 12
    assert len({chunk.id for chunk in chunks}) == 1


def test_several_choices_are_generated_and_seeds_repeat_them(client: OpenAI) -> None:
    def sample(seed: int) -> list[str | None]:
        completion = client.chat.completions.create(
            model="tiny", messages=QUESTION, n=3, temperature=1.5, seed=seed, max_tokens=10
        )
        assert [choice.index for choice in completion.choices] == [0, 1, 2]
        assert completion.usage is not None and completion.usage.completion_tokens <= 30
        return [choice.message.content for choice in completion.choices]

    first = sample(1)
    assert first == sample(1) != sample(50)
    assert len(set(first)) > 1


def test_a_stop_sequence_ends_the_text_before_it(client: OpenAI, tiny_engine: Engine) -> None:
    text = expected_text(tiny_engine, 30)
    stop = text[8:11]
    completion = client.chat.completions.create(model="tiny", messages=QUESTION, max_tokens=30, stop=[stop, "xyzzy"])
    assert completion.choices[0].message.content == text[: text.index(stop)]
    assert completion.choices[0].finish_reason == "stop"


def test_a_diffusing_stream_shows_the_whole_text_each_time(address: str, tiny_engine: Engine) -> None:
    body = {"messages": QUESTION, "max_tokens": 12, "diffusing": True}
    frames = []
    with httpx.stream("POST", f"http://{address}/v1/chat/completions", json=body, timeout=HANG_S) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if line.startswith("data: {"):
                frames.append(json.loads(line.removeprefix("data: ")))
    frames = [frame for frame in frames if "diffusion_meta" in frame]
    texts = [frame["choices"][0]["delta"]["content"] for frame in frames]
    lengths = [frame["diffusion_meta"]["committed_length"] for frame in frames]
    assert texts[-1] == expected_text(tiny_engine, 12) and lengths[-1] == len(texts[-1])
    assert lengths == sorted(lengths) and len(frames) > 1
    assert all(texts[-1].startswith(text[:length]) for text, length in zip(texts, lengths, strict=True))


def test_verbosity_reaches_the_model_in_either_api(client: OpenAI) -> None:
    read = list[tuple[int, int]]()
    for verbosity in ("medium", "low", "high"):
        asked = QUESTION[1:]
        chat = client.chat.completions.create(model="tiny", messages=asked, max_tokens=1, verbosity=verbosity)
        response = client.responses.create(
            model="tiny", input=asked, max_output_tokens=16, text={"verbosity": verbosity}
        )
        assert chat.usage is not None and response.usage is not None
        read.append((chat.usage.prompt_tokens, response.usage.input_tokens))
    medium, low, high = read
    assert medium[0] == medium[1] and low[0] == low[1] and high[0] == high[1], "both say the same to the model"
    assert min(low[0], high[0]) > medium[0] and low != high


def test_biased_tokens_and_penalties_change_the_text(client: OpenAI, tiny_engine: Engine) -> None:
    def text(**options: Any) -> str | None:
        completion = client.chat.completions.create(model="tiny", messages=QUESTION, max_tokens=12, **options)
        return completion.choices[0].message.content

    plain, tokenizer = text(), tiny_engine.model.tokenizer
    first = tokenizer.encode(plain or "")[0]
    assert text(logit_bias={str(first): -100}) != plain
    only = tokenizer.encode("hello")[0]
    assert text(logit_bias={str(only): 100}) == tokenizer.decode([only] * 12)
    varied = text(frequency_penalty=2, presence_penalty=2) or ""
    assert len(set(tokenizer.encode(varied))) > len(set(tokenizer.encode(plain or "")))
    assert text(frequency_penalty=0, presence_penalty=0, logit_bias={}) == plain


@pytest.mark.parametrize(
    ("body", "status", "param", "words"),
    [
        ({"messages": []}, 400, "messages", "at least 1"),
        ({"messages": QUESTION, "model": "gpt-9"}, 404, "model", "'tiny'"),
        ({"messages": QUESTION, "max_tokens": 0}, 400, "max_tokens", "greater"),
        ({"messages": QUESTION, "temperature": 3}, 400, "temperature", "less"),
        ({"messages": QUESTION, "frequency_penalty": 2.1}, 400, "frequency_penalty", "less"),
        ({"messages": QUESTION, "presence_penalty": -3}, 400, "presence_penalty", "greater"),
        ({"messages": QUESTION, "logit_bias": {"5": 101}}, 400, "logit_bias", "less"),
        ({"messages": QUESTION, "logit_bias": {"the": 1}}, 400, "logit_bias.the", "integer"),
        ({"messages": QUESTION, "logit_bias": {"999999": 1}}, 400, None, "logit_bias names the token 999999"),
        ({"messages": QUESTION, "logit_bias": {str(n): 1 for n in range(1025)}}, 400, "logit_bias", "1024"),
        ({"messages": QUESTION, "verbosity": "huge"}, 400, "verbosity", "low"),
        ({"messages": QUESTION, "surprise": 1}, 400, "surprise", "no parameter"),
        ({"messages": [{"role": "user"}]}, 400, "messages[0]", "needs content"),
        ({"messages": [{"role": "wizard", "content": "hi"}]}, 400, "messages[0].role", "wizard|assistant"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            400,
            "messages[0].content[0]",
            "text only",
        ),
        ({"messages": [{"role": "user", "content": "hello " * 100_000}]}, 400, "messages", "shorten"),
        ({"messages": [{"role": "user", "content": "hello " * 4000}] * 2}, 400, "messages", "shorten"),
        ({}, 400, "messages", "missing"),
    ],
)
def test_bad_requests_get_a_sentence(
    address: str, body: dict[str, Any], status: int, param: str | None, words: str
) -> None:
    response = httpx.post(f"http://{address}/v1/chat/completions", json=body, timeout=HANG_S)
    error = response.json()["error"]
    assert response.status_code == status and error["param"] == param
    assert any(word in error["message"] for word in words.split("|")), error


def test_a_body_that_is_no_json_and_one_that_is_too_large(address: str, client: OpenAI) -> None:
    url = f"http://{address}/v1/chat/completions"
    response = httpx.post(url, content=b"{nonsense", timeout=HANG_S)
    assert response.status_code == 400 and "not valid JSON" in response.json()["error"]["message"]
    response = httpx.post(url, content=b" " * (5 << 20), timeout=HANG_S)
    assert response.status_code == 413
    assert client.chat.completions.create(model="tiny", messages=QUESTION, max_tokens=2).choices


def test_a_key_is_needed_where_one_is_set(tiny_engine: Engine) -> None:
    with serving(engine=tiny_engine, api_keys=frozenset({"secret"})) as address:
        url = f"http://{address}/v1"
        with pytest.raises(openai.AuthenticationError):
            OpenAI(base_url=url, api_key="wrong", max_retries=0).models.list()
        assert [model.id for model in OpenAI(base_url=url, api_key="secret").models.list()] == ["tiny"]


def test_another_origin_is_refused(address: str) -> None:
    response = httpx.get(f"http://{address}/v1/models", headers={"origin": "https://evil.example"}, timeout=HANG_S)
    assert response.status_code == 403


def test_models(client: OpenAI) -> None:
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError, match="does not exist here"):
        client.models.retrieve("org/other")


def test_too_many_completions_are_refused(
    address: str, client: OpenAI, monkeypatch: pytest.MonkeyPatch, tiny_engine: Engine
) -> None:
    admission = Admission()
    with serving(engine=tiny_engine, admission=admission) as busy:
        streams = [
            httpx.Client().send(
                httpx.Request(
                    "POST", f"http://{busy}/v1/chat/completions", json={"messages": QUESTION, "stream": True}
                ),
                stream=True,
            )
            for _ in range(MAX_COMPLETIONS)
        ]
        refused = httpx.post(f"http://{busy}/v1/chat/completions", json={"messages": QUESTION}, timeout=HANG_S)
        assert refused.status_code == 503 and refused.json()["error"]["code"] == "too_many_completions"
        assert "retry-after" in refused.headers
        assert admission.refusals == {"too_many_completions": 1}
        for stream in streams:
            stream.close()


async def test_a_client_that_hangs_up_ends_its_completion(address: str, tiny_engine: Engine) -> None:
    url, limits = f"http://{address}/v1/chat/completions", httpx.Timeout(HANG_S, read=0.2)
    async with httpx.AsyncClient(timeout=limits) as client:
        with held(tiny_engine), pytest.raises(httpx.ReadTimeout):
            await client.post(url, json={"messages": QUESTION})
    await wait_until(lambda: not tiny_engine._active and not tiny_engine._waiting)
    async with (
        httpx.AsyncClient(timeout=HANG_S) as client,
        client.stream("POST", url, json={"messages": QUESTION, "stream": True}) as response,
    ):
        assert await anext(response.aiter_bytes())
    await wait_until(lambda: not tiny_engine._active and not tiny_engine._waiting)
