"""A conversation's language model that asks the bigger model where it is worth it, and otherwise the local one.

What leaves the machine, and when: the conversation, once for each step of a response that `routing.py` sends there, and
only once the turn is over. What reads ahead, what judges whether a sentence is complete, and speculation are local.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import httpx

from agent.language_model import Grammar, LanguageModel, LanguageModelWrapper, Progress, RemoteRequest
from agent.remote.argument_check import match_schema
from agent.remote.chat_stream import ChatStream, RemoteCall, request_body
from agent.remote.circuit_breaker import CircuitBreaker
from agent.remote.endpoint import ChatEndpoint, RemoteFailed
from agent.remote.routing import reason_for_remote
from agent.remote.settings import RemoteSettings
from chat.types import Effort, Message, OfferedTools, Tool, ToolCallDelta, ToolChoice

_log = logging.getLogger("rejoinder.server")

_STALL_S = 5.0
"""How long nothing may arrive in the middle of a response. By then the user has heard what came before."""

_USAGE_S = 1.0
"""How long the count of tokens may take to arrive after the answer."""

_CHARACTERS_PER_TOKEN = 4
"""To estimate tokens that the server does not count, or has not yet."""

BROKEN_OFF = "I am sorry, the rest of this answer did not arrive."
"""Said when an answer ends after a part of it was said. The local model does not go on: it would say things twice."""


@dataclass(frozen=True)
class RemoteProgress:
    """A `agent.language_model.Progress`. Its steps and tokens are in the `RemoteRequest`: here none were made."""

    committed: str = ""
    finished: str | None = None
    tool_calls: tuple[ToolCallDelta, ...] = ()
    draft: str = ""
    confidence: tuple[float, ...] = ()
    draft_ends: tuple[int, ...] = ()
    draft_origin: str = ""
    drafts_shown: int = 0
    drafts_kept: int = 0
    denoised: str = ""
    step: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0


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

    def with_fallback(self, local: LanguageModel) -> LanguageModel:
        """The language model of one conversation."""
        return RemoteLanguageModel(self, local)

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

    async def close(self) -> None:
        """Close the connections."""
        await self.endpoint.close()


class RemoteLanguageModel(LanguageModelWrapper):
    """A `LanguageModel`: the bigger one, in front of a local one that is the fallback. `limit_context` is for the local
    one; the bigger one gets all messages, as it has a limit of its own."""

    def __init__(self, remote: RemoteLLM, local: LanguageModel) -> None:
        super().__init__(local)
        self._remote = remote
        self._newest = 0  # number of the newest request; others are cancelled

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int | None = None,
        deadline: float | None = None,
        tools: Sequence[Tool] = (),
        tool_choice: ToolChoice = "auto",
        offered: OfferedTools | None = None,
        parallel_tool_calls: bool = False,
        effort: Effort | None = None,
        grammar: Grammar | None = None,
    ) -> AsyncIterator[Progress | RemoteRequest]:
        """See `LanguageModel`. What must follow a grammar comes from the local model, which enforces it."""
        settings = self._remote.settings
        offered_tools = [tool for tool in tools if offered is None or tool.name in offered.names]
        reason = reason_for_remote(settings.scope, messages, offered_tools, effort)
        if reason is not None and grammar is None and self._remote.breaker.allows:
            callable_tools = {"none": (), "auto": offered_tools}.get(str(tool_choice), tools)
            body = request_body(
                settings.model,
                messages,
                callable_tools,
                tool_choice,
                parallel_tool_calls=parallel_tool_calls,
                max_tokens=max_tokens,
                effort=effort,
            )
            request, has_begun = self._remote.new_request(reason), False
            yield request
            answering = self._ask(request, body, callable_tools)
            async with aclosing(answering):  # type: ignore[type-var]
                async for progress in answering:
                    has_begun = True
                    yield progress
            if has_begun or request.status not in ("slow", "failed"):
                return
        local = self._model.reply(
            messages,
            max_tokens=max_tokens,
            deadline=deadline,
            tools=tools,
            tool_choice=tool_choice,
            offered=offered,
            parallel_tool_calls=parallel_tool_calls,
            effort=effort,
            grammar=grammar,
        )
        async for local_progress in local:
            yield local_progress

    async def _ask(
        self, request: RemoteRequest, body: dict[str, Any], tools: Sequence[Tool]
    ) -> AsyncIterator[RemoteProgress]:
        """The answer of the bigger model, nothing if it is slow or fails before it has begun; the request says so."""
        self._newest += 1
        number, stream, said = self._newest, ChatStream(), ""
        request.input_tokens = len(json.dumps(body["messages"])) // _CHARACTERS_PER_TOKEN
        try:
            reading = self._read(request, body, stream)
            async with aclosing(reading):  # type: ignore[type-var]
                async for text in reading:
                    if number != self._newest:  # cancelled
                        return
                    if new := text if said else text.lstrip():
                        said += new
                        request.output_tokens = len(said) // _CHARACTERS_PER_TOKEN + 1
                        yield RemoteProgress(new)
            parallel = body.get("parallel_tool_calls", False)
            calls = _checked_calls(stream.calls if parallel else stream.calls[:1], tools)
            if not said and not calls:
                raise RemoteFailed("sent an empty answer", server_failed=False)
        except RemoteFailed as error:
            self._on_failure(request, error)
            if said:
                yield RemoteProgress(f"{'' if said.rstrip()[-1] in '.!?' else '.'} {BROKEN_OFF}", "stop")
            return
        self._remote.breaker.succeeded()
        request.status = "answered"
        if stream.usage is not None:
            request.input_tokens, request.output_tokens = stream.usage
        finished = "tool_calls" if calls else "length" if stream.finish_reason == "length" else "stop"
        yield RemoteProgress("", finished, calls)

    async def _read(self, request: RemoteRequest, body: dict[str, Any], stream: ChatStream) -> AsyncIterator[str]:
        """The text as it arrives, within the time limits. Raises RemoteFailed."""
        settings, clock = self._remote.settings, asyncio.get_running_loop().time
        start = clock()
        lines = self._remote.endpoint.stream(body, stream)
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
        breaker = self._remote.breaker
        wait_s = breaker.failed(error.retry_after_s) if error.server_failed else 0.0
        rest = f"; it is not asked again for {wait_s:.0f} s" if wait_s else ""
        _log.warning("%s at %s %s%s", request.model, request.host, error, rest)

    def prepare(
        self, messages: Sequence[Message], *, tools: Sequence[Tool] = (), tool_choice: ToolChoice = "auto"
    ) -> None:
        """See `LanguageModel`. Only the local model reads ahead."""
        self._model.prepare(messages, tools=tools, tool_choice=tool_choice)

    def cancel(self) -> None:
        """See `LanguageModel`."""
        self._newest += 1
        super().cancel()

    def fork(self) -> LanguageModel:
        """See `LanguageModel`."""
        return RemoteLanguageModel(self._remote, self._model.fork())


def _checked_calls(calls: Sequence[RemoteCall], tools: Sequence[Tool]) -> tuple[ToolCallDelta, ...]:
    """Calls whose arguments match the functions' schemas. Raises RemoteFailed."""
    by_name, checked = {tool.name: tool for tool in tools}, []
    for index, call in enumerate(calls):
        if call.name not in by_name:
            raise RemoteFailed(f"called {call.name[:64]!r}, which is no function", server_failed=False)
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
