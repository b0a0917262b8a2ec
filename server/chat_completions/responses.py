"""`/v1/responses`: the same generation as chat completions, as items and named events, and with a memory of its own."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent.tool_loop import MAX_CALLS, ToolLoop
from chat.types import Ask, Message, ToolCall
from model.engine.engine import Engine
from server.access.keys import ApiKey
from server.access.usage import key_name
from server.api_errors import APIError
from server.budgets import STORED_RESPONSES, Kept, memory
from server.chat_completions.generation import TokenUsage, new_conversation
from server.chat_completions.reasoning import Reasoning, denoising_effort
from server.chat_completions.requests import RequestLimit, TextEndpoint, check_format, requested_sampling, tool_options
from server.chat_completions.response_steps import ResponseSteps
from server.chat_completions.responses_schema import InputItem, ResponseRequest
from server.chat_completions.schema import NamedFunction, content_text
from server.chat_completions.server_side_tools import ServerSideTools
from server.chat_completions.streaming import event_stream, unless_disconnected
from server.chat_completions.verbosity import with_verbosity
from server.context import ServerContext
from server.server_sent_events import event


@dataclass(frozen=True)
class _Stored:
    """A response and the conversation up to it."""

    messages: tuple[Message, ...]
    body: dict[str, Any]


class Responses(TextEndpoint):
    """Answers requests of the Responses API."""

    def __init__(self, context: ServerContext, engine: Engine, limit: RequestLimit, reasoning: Reasoning) -> None:
        super().__init__(engine, context.model, limit)
        self._context, self._reasoning = context, reasoning
        self._stored = Kept[_Stored](STORED_RESPONSES)
        self._running: dict[str, tuple[str, ToolLoop, dict[str, Any]]] = {}

    async def cancel(self, request: Request) -> Response:
        """Stop a response that is being generated. Raises APIError."""
        name, owner = request.path_params["id"], key_name(request.state.key)
        if (generating := self._generating(name, owner)) is None:
            raise APIError(404, f"no response {name!r} is being generated", "id")
        loop, response = generating
        loop.cancel()
        return JSONResponse({**response, "status": "cancelled"})

    async def create(self, request: Request) -> Response:
        """A new response. Raises APIError, ClientDisconnect."""
        body = await self._read(request, ResponseRequest)
        if body.stream:
            return await event_stream(request, self._stream(body, request.state.key))

        async def last() -> dict[str, Any]:
            response: dict[str, Any] = {}
            async for item in self._events(body, request.state.key):
                response = item.get("response", response)
            return response

        return JSONResponse(await unless_disconnected(request, last()))

    async def retrieve(self, request: Request) -> Response:
        """A stored response, or one that is being generated. Raises APIError."""
        name, owner = request.path_params["id"], key_name(request.state.key)
        if (generating := self._generating(name, owner)) is not None:
            return JSONResponse(generating[1])
        return JSONResponse(self._find(name, owner).body)

    async def delete(self, request: Request) -> Response:
        """Forget a stored response. Raises APIError."""
        name = request.path_params["id"]
        self._find(name, key_name(request.state.key))
        self._stored.remove(name)
        return JSONResponse({"id": name, "object": "response", "deleted": True})

    async def forget(self, key: str) -> None:
        """Forget all responses of an API key."""
        self._stored.forget(key)

    def _generating(self, name: str, owner: str) -> tuple[ToolLoop, dict[str, Any]] | None:
        """The loop and the response of this owner that is being generated; None if there is none."""
        running = self._running.get(name)
        return running[1:] if running is not None and running[0] == owner else None

    def _find(self, name: str, owner: str, param: str = "id") -> _Stored:
        """A response of this owner. Others are told that there is none.

        Args:
            param: the parameter that names it.

        Raises:
            APIError: there is none.
        """
        stored = self._stored.get(name, owner)
        if stored is None:
            message = (
                f"there is no stored response {name!r}; the newest {STORED_RESPONSES.bytes >> 20} MiB of a key are kept"
            )
            raise APIError(404, message, param)
        return stored

    async def _stream(self, body: ResponseRequest, key: ApiKey | None) -> AsyncIterator[str]:
        number, response = 0, dict[str, Any]()
        try:
            async for item in self._events(body, key):
                response = item.get("response", response)
                yield event({**item, "sequence_number": number}, item["type"])
                number += 1
        except APIError as error:
            if not response:
                raise  # its status says it
            told = {"code": error.code or "server_error", "message": error.message}
            yield event({"type": "error", **told, "param": error.param, "sequence_number": number}, "error")
            failed = {"type": "response.failed", "response": {**response, "status": "failed", "error": told}}
            yield event({**failed, "sequence_number": number + 1}, "response.failed")

    async def _events(self, body: ResponseRequest, key: ApiKey | None) -> AsyncIterator[dict[str, Any]]:
        """Every event of a response. The last one holds it complete."""
        owner = key_name(key)
        with self._limit.slot():
            messages = self._conversation(body, owner)
            await check_format(self._engine, body.text.format, "text.format")
            async with ServerSideTools(
                self._context, body.mcp_servers, [function.name for function in body.functions], key
            ) as tools:
                conversation = new_conversation(self._engine, keep_all_messages=body.truncation != "auto")
                await tools.connect(conversation)
                effort = body.reasoning.effort if body.reasoning else None
                ask, verbosity = self._ask(body), body.text.verbosity
                text = replace(ask, messages=with_verbosity(messages, verbosity))
                found = await self._reasoning.work_out(messages, None if body.tools else effort, text)
                response = _response_object(body, self._model)
                loop = ToolLoop(min(body.max_tool_calls or MAX_CALLS, MAX_CALLS), body.max_tool_seconds)
                steps = ResponseSteps(
                    conversation,
                    tools,
                    loop,
                    list(with_verbosity(found.messages, verbosity)),
                    ask,
                    found,
                )
                self._running[response["id"]] = owner, loop, response
                try:
                    items = steps.events()
                    first = await anext(items)  # what is wrong with the request is known before a response exists
                    yield {"type": "response.created", "response": response}
                    yield {"type": "response.in_progress", "response": response}
                    yield first
                    async for item in items:
                        yield item
                finally:
                    del self._running[response["id"]]
            reason = steps.incomplete
            response = {
                **response,
                "status": "completed" if reason is None else "cancelled" if reason == "cancelled" else "incomplete",
                "incomplete_details": None if reason is None else {"reason": reason},
                "output": steps.items,
                "usage": _usage(steps.usage),
                "rejoinder": {"tool_calls": loop.calls, "stopped_by": loop.stopped},
            }
            if body.store is not False:
                self._store(response, [*messages, *steps.new_messages], owner)
            yield {"type": "response.completed" if reason is None else "response.incomplete", "response": response}

    def _ask(self, body: ResponseRequest) -> Ask:
        """What the first step is asked, without the conversation and the tools of MCP servers."""
        effort = body.reasoning.effort if body.reasoning else None
        ask = Ask(
            (),
            max_tokens=body.max_output_tokens,
            effort=denoising_effort(effort),
            sampling=requested_sampling(body, self._engine.sampling),
            grammar=body.text.format.as_grammar,
            top_log_probabilities=body.top_logprobs or 0 if body.wants_logprobs else None,
            **tool_options(body.functions, body.tool_choice, body.parallel_tool_calls, body.max_tool_calls),
        )
        if not body.functions and body.mcp_servers and not isinstance(body.tool_choice, NamedFunction):
            ask = replace(ask, tool_choice=body.tool_choice, parallel_tool_calls=bool(body.parallel_tool_calls))
        return ask

    def _conversation(self, body: ResponseRequest, owner: str) -> list[Message]:
        """Instructions, which apply to this response only, what came before, and the input. Raises APIError."""
        messages = [] if body.instructions is None else [Message("system", body.instructions)]
        if body.previous_response_id is not None:
            messages += self._find(body.previous_response_id, owner, "previous_response_id").messages
        messages += [Message("user", body.input)] if isinstance(body.input, str) else _messages(body.input)
        if not messages:
            raise APIError(400, "the input has no messages: it needs one", "input")
        return messages

    def _store(self, response: dict[str, Any], messages: Sequence[Message], owner: str) -> None:
        said = messages if response["instructions"] is None else messages[1:]
        calls = [call.arguments for message in said for call in message.tool_calls]
        size = memory(response) + memory([message.content for message in said]) + memory(calls)
        self._stored.put(response["id"], _Stored(tuple(said), response), size, owner)


def _messages(items: Sequence[InputItem]) -> list[Message]:
    """The conversation of some items. Calls belong to the assistant's message before them."""
    messages: list[Message] = []
    for item in items:
        if item.type == "function_call":
            call = ToolCall(item.call_id or "", item.name or "", item.arguments or "")
            if messages and messages[-1].role == "assistant":
                messages[-1] = replace(messages[-1], tool_calls=(*messages[-1].tool_calls, call))
            else:
                messages.append(Message("assistant", "", (call,)))
        elif item.type == "mcp_call":
            call = ToolCall(item.id or "", item.name or "", item.arguments or "")
            messages.append(Message("assistant", "", (call,)))
            output = item.error if item.output is None else content_text(item.output)
            messages.append(Message("tool", output or "", tool_call_id=call.id))
        elif item.type == "mcp_list_tools":
            continue
        elif item.type == "function_call_output":
            messages.append(Message("tool", content_text(item.output), tool_call_id=item.call_id))
        else:
            role = item.role or "user"
            messages.append(Message("system" if role == "developer" else role, content_text(item.content)))
    return messages


def _usage(usage: TokenUsage) -> dict[str, Any]:
    body = usage.body()
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": body["prompt_tokens_details"],
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": body["completion_tokens_details"],
        "total_tokens": body["total_tokens"],
        "rejoinder": body["rejoinder"],
    }


def _response_object(body: ResponseRequest, model: str) -> dict[str, Any]:
    """The response before anything is generated. It repeats what was asked."""
    asked = body.model_dump(by_alias=True, exclude={"input", "stream", "include", "stream_options"})
    return {
        **asked,
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": int(time.time()),
        "model": model,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "output": [],
        "parallel_tool_calls": bool(body.parallel_tool_calls),
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        "store": body.store is not False,
        "truncation": body.truncation or "disabled",
        "metadata": body.metadata or {},
        "usage": None,
    }
