"""A chat-completions server that follows scripts, without sockets and on any clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from agent.remote.remote_llm import RemoteLLM
from agent.remote.settings import RemoteSettings

Step = float | str | Exception
"""Seconds to wait, a line to send, or how the connection breaks."""


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> str:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return "data: " + json.dumps({"object": "chat.completion.chunk", "choices": choices, **fields})


def text(
    *words: str, finish: str = "stop", usage: tuple[int, int] | None = (120, 7), pause: float = 0.02
) -> list[Step]:
    """A complete answer, word by word."""
    steps: list[Step] = [chunk({"role": "assistant", "content": ""})]
    for word in words:
        steps += [pause, chunk({"content": word})]
    steps.append(chunk({}, finish))
    if usage is not None:
        steps.append(chunk(usage={"prompt_tokens": usage[0], "completion_tokens": usage[1]}))
    return [*steps, "data: [DONE]"]


def calls(*made: tuple[str, str]) -> list[Step]:
    """Function calls, the arguments in two parts."""
    steps: list[Step] = []
    for index, (name, arguments) in enumerate(made):
        function = {"name": name, "arguments": arguments[:4]}
        steps.append(
            chunk({"tool_calls": [{"index": index, "id": f"c{index}", "type": "function", "function": function}]})
        )
        steps.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": arguments[4:]}}]}))
    return [*steps, chunk({}, "tool_calls"), "data: [DONE]"]


@dataclass
class ScriptedServer(httpx.AsyncBaseTransport):
    """Answers each request with the next script, and the last one again and again. Records bodies, when they came, and
    how many connections were closed before their script had ended.

    A script is a list of steps, or a status.
    """

    scripts: Sequence[Sequence[Step] | int]
    headers: dict[str, str] = field(default_factory=dict)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    closed_early: int = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        script = self.scripts[min(len(self.bodies), len(self.scripts) - 1)]
        self.bodies.append(json.loads(await request.aread()))
        self.times.append(asyncio.get_running_loop().time())
        self.keys.append(request.headers.get("authorization"))
        if isinstance(script, int):
            return httpx.Response(script, headers=self.headers, text="the conversation, repeated")
        return httpx.Response(200, stream=_Body(self, script))


class _Body(httpx.AsyncByteStream):
    def __init__(self, server: ScriptedServer, script: Sequence[Step]) -> None:
        self._server, self._script, self._ended = server, script, False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for number, step in enumerate(self._script, 1):
            self._ended = number == len(self._script)
            if isinstance(step, Exception):
                raise step
            if isinstance(step, str):
                yield step.encode() + b"\n\n"
            else:
                await asyncio.sleep(step)

    async def aclose(self) -> None:
        self._server.closed_early += not self._ended


def remote_llm(server: ScriptedServer, **settings: Any) -> RemoteLLM:
    """The bigger model there. Its circuit breaker uses the running loop's clock."""
    chosen = {"url": "https://llm.example.org/v1", "model": "big", "scope": "all", **settings}
    return RemoteLLM(RemoteSettings(**chosen), server, lambda: asyncio.get_running_loop().time())
