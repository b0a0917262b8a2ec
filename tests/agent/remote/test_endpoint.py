"""The bigger model over real sockets: our own chat completions, and a server that misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from agent.language_model import RemoteRequest
from agent.plan import Decision
from agent.planner import Planner
from agent.remote.remote_llm import BROKEN_OFF, RemoteLLM
from agent.remote.settings import RemoteSettings
from chat.types import Ask, Message, Tool
from model.engine.engine import Engine
from tests.agent.remote.scripted_server import chunk
from tests.fakes import FakeLanguageModel
from tests.server.live_server import serving

PROMPT = [Message("system", "Be brief."), Message("user", "What is the capital of France?")]
LOCAL = "The capital of France is Paris."
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def address(tiny_engine: Engine) -> Iterator[str]:
    with serving(engine=tiny_engine) as address:
        yield address


@asynccontextmanager
async def raw_server(answer: bytes, then_wait_s: float = 0.0) -> AsyncIterator[str]:
    """Answers every request with these bytes, waits, and closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        await asyncio.sleep(then_wait_s)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


async def ask(url: str, first_token_s: float = 5.0, tools: tuple[Tool, ...] = ()) -> tuple[str, RemoteRequest]:
    remote = RemoteLLM(RemoteSettings(url, "tiny", scope="all", first_token_s=first_token_s))
    text, requests = "", list[RemoteRequest]()
    try:
        planner = Planner(FakeLanguageModel(seconds_per_word=0), remote=remote)
        async for step in planner.respond(Ask(PROMPT, max_tokens=8, tools=tools)):
            if isinstance(step, RemoteRequest):
                requests.append(step)
            elif not isinstance(step, Decision):
                text += step.committed + "".join(call.name for call in step.tool_calls)
    finally:
        await remote.close()
    return text, requests[0]


async def test_our_own_api_answers(address: str) -> None:
    text, request = await ask(f"http://{address}/v1", first_token_s=60)
    assert (request.status, request.error) == ("answered", "")
    assert text and text != LOCAL
    assert 0 < request.output_tokens <= 8 and request.input_tokens > 5
    assert request.first_token_ms is not None and request.first_token_ms > 0
    assert request.leaves_machine is False


async def test_our_own_api_calls_functions(address: str) -> None:
    tools = (Tool("look", "Look at the weather."),)
    _, request = await ask(f"http://{address}/v1", first_token_s=60, tools=tools)
    assert request.status == "answered" or "no function" in request.error or "schema" in request.error


@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [
        (b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n", "failed", "failed (HTTP 500)"),
        (b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\nno", "failed", "(HTTP 429)"),
        (b"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n", "failed", "(HTTP 301)"),
        (b"SSH-2.0-OpenSSH_9.7\r\n", "failed", "broke the connection"),
        (b"", "failed", "broke the connection"),
        (HEAD + b"data: {]\n\n", "failed", "not a chat completion"),
        (HEAD + b"data: " + b"x" * (2 << 20), "failed", "more than 1 MiB"),
        (HEAD + bytes(range(256)), "failed", "before it was complete"),
    ],
)
async def test_the_local_model_answers_when_the_server_misbehaves(answer: bytes, status: str, error: str) -> None:
    async with raw_server(answer) as url:
        text, request = await ask(url)
    assert (text, request.status) == (LOCAL, status)
    assert error in request.error


async def test_a_server_that_says_nothing_is_given_up() -> None:
    async with raw_server(HEAD, then_wait_s=30) as url:
        text, request = await ask(url, first_token_s=0.2)
    assert (text, request.status) == (LOCAL, "slow")


async def test_a_server_that_dies_in_the_middle_of_an_answer_is_not_repeated() -> None:
    async with raw_server(HEAD + chunk({"content": "Paris is"}).encode() + b"\n\n") as url:
        text, request = await ask(url)
    assert (text, request.status) == (f"Paris is. {BROKEN_OFF}", "failed")


async def test_nobody_listens() -> None:
    async with raw_server(b"") as url:
        pass
    text, request = await ask(url)
    assert text == LOCAL
    assert "cannot be reached" in request.error
