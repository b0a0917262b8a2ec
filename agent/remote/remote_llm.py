"""The bigger model, elsewhere: what it is asked, and what happens when it is slow or fails.

What leaves the machine, and when: the conversation, once for each step of a response that the planner sends there, and
only once the turn is over. What reads ahead, what judges whether a sentence is complete, and speculation are local.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Literal

import httpx

from agent.language_model import RemoteRequest
from agent.remote.argument_check import match_schema
from agent.remote.chat_stream import ChatStream, RemoteCall, RemoteFailed, request_body
from agent.remote.circuit_breaker import CircuitBreaker
from agent.remote.endpoint import ChatEndpoint
from agent.remote.settings import RemoteSettings
from chat.progress import Progress
from chat.types import Ask, Tool, ToolCallDelta

_log = logging.getLogger("rejoinder.server")

_STALL_S = 5.0
"""How long nothing may arrive in the middle of a response. By then the user has heard what came before."""

_USAGE_S = 1.0
"""How long the count of tokens may take to arrive after the answer."""

_CHARACTERS_PER_TOKEN = 4
"""To estimate tokens that the server does not count, or has not yet."""

BROKEN_OFF = "I am sorry, the rest of this answer did not arrive."
"""Said when an answer ends after a part of it was said. The local model does not go on: it would say things twice."""


class RemoteLLM:
    """The bigger model, for all conversations.

    Args:
        transport: for tests.
        clock: seconds, monotonic.

    Attributes:
        breaker: leaves the server alone while it fails.
    """

    def __init__(
        self,
        settings: RemoteSettings,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings, self.breaker = settings, CircuitBreaker(clock)
        self.endpoint = ChatEndpoint(settings, transport)

    def new_request(self, reason: str) -> RemoteRequest:
        """A request that has not been sent."""
        settings = self.settings
        return RemoteRequest(settings.host, settings.leaves_machine, settings.model, reason)

    @property
    def description(self) -> dict[str, Any]:
        """What clients may know: `host`, `model`, `scope` and `leaves_machine`."""
        settings = self.settings
        names = {"host": settings.host, "model": settings.model}
        return {**names, "scope": settings.scope, "leaves_machine": settings.leaves_machine}

    @property
    def notice(self) -> str:
        """Says at the start what goes where."""
        settings = self.settings
        what = "every question" if settings.scope == "all" else "hard questions"
        if not settings.leaves_machine:
            return f"{settings.model} at {settings.host} answers {what}; words stay on this machine."
        return f"Words leave this machine: {settings.model} at {settings.host} answers {what}."

    async def answer(self, request: RemoteRequest, ask: Ask) -> AsyncIterator[Progress]:
        """The answer of the bigger model; nothing if it is slow or fails before it has begun: the request says so."""
        tools = () if ask.tool_choice == "none" else ask.tools
        body, stream, said = request_body(self.settings.model, ask), ChatStream(), ""
        request.input_tokens = len(json.dumps(body["messages"])) // _CHARACTERS_PER_TOKEN
        try:
            reading = self._read(request, body, stream)
            async with aclosing(reading):  # type: ignore[type-var]
                async for text in reading:
                    if new := text if said else text.lstrip():
                        said += new
                        request.output_tokens = len(said) // _CHARACTERS_PER_TOKEN + 1
                        yield Progress(new)
            parallel = body.get("parallel_tool_calls", False)
            calls = _checked_calls(stream.calls if parallel else stream.calls[:1], tools)
            if not said and not calls:
                raise RemoteFailed("sent an empty answer", server_failed=False)
        except RemoteFailed as error:
            self._on_failure(request, error)
            if said:
                yield Progress(f"{'' if said.rstrip()[-1] in '.!?' else '.'} {BROKEN_OFF}", finished="stop")
            return
        self.breaker.succeeded()
        request.status = "answered"
        if stream.usage is not None:
            request.input_tokens, request.output_tokens = stream.usage
        end: Literal["length", "stop"] = "length" if stream.finish_reason == "length" else "stop"
        yield Progress(finished="tool_calls" if calls else end, tool_calls=calls)

    async def _read(self, request: RemoteRequest, body: dict[str, Any], stream: ChatStream) -> AsyncIterator[str]:
        """The text as it arrives, within the time limits. Raises RemoteFailed."""
        settings, clock = self.settings, asyncio.get_running_loop().time
        start = clock()
        lines = self.endpoint.stream(body, stream)
        async with aclosing(lines):  # type: ignore[type-var]
            while True:
                if stream.finish_reason is not None:
                    by = clock() + _USAGE_S
                elif stream.has_begun:
                    by = min(clock() + _STALL_S, start + settings.total_s)
                else:
                    by = start + settings.first_token_s
                try:
                    async with asyncio.timeout_at(by):
                        text = await anext(lines)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    if stream.finish_reason is not None:
                        return
                    if stream.has_begun:
                        raise RemoteFailed("stopped in the middle of an answer") from None
                    request.status = "slow"
                    raise RemoteFailed(f"sent nothing for {settings.first_token_s:g} s") from None
                if stream.has_begun and request.first_token_ms is None:
                    request.first_token_ms = round((clock() - start) * 1000, 1)
                yield text

    def _on_failure(self, request: RemoteRequest, error: RemoteFailed) -> None:
        request.error = str(error)
        if request.status != "slow":
            request.status = "failed"
        wait_s = self.breaker.failed(error.retry_after_s) if error.server_failed else 0.0
        rest = f"; it is not asked again for {wait_s:.0f} s" if wait_s else ""
        _log.warning("%s at %s %s%s", request.model, request.host, error, rest)

    async def close(self) -> None:
        """Close the connections."""
        await self.endpoint.close()


def _checked_calls(calls: Sequence[RemoteCall], tools: Sequence[Tool]) -> tuple[ToolCallDelta, ...]:
    """Calls whose arguments match the functions' schemas. Raises RemoteFailed."""
    by_name, checked = {tool.name: tool for tool in tools}, []
    for index, call in enumerate(calls):
        if call.name not in by_name:
            raise RemoteFailed("called a function that it was not offered", server_failed=False)
        try:
            arguments = json.loads(call.arguments or "{}")
            valid = isinstance(arguments, dict) and match_schema(arguments, by_name[call.name].parameters)
        except (ValueError, RecursionError):
            valid = False
        if not valid:
            message = f"called {call.name} with arguments that do not match its schema"
            raise RemoteFailed(message, server_failed=False)
        checked.append(ToolCallDelta(index, call.name, json.dumps(arguments, ensure_ascii=False), done=True))
    return tuple(checked)
