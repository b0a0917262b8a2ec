"""What requests of several endpoints have in common: the model's name, messages and sampling."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from starlette.requests import Request

from chat.types import Message, NamedTool, Tool, ToolCall
from model.decode.grammar import InvalidGrammar
from model.decode.sampling import Sampling
from model.engine.engine import Engine
from server.access.admission import Admission, RefusalCode
from server.access.usage import NO_KEY, current_key
from server.api_errors import APIError, read_json
from server.chat_completions.generation import in_bulk
from server.chat_completions.schema import (
    ChatMessage,
    FunctionDefinition,
    GenerationRequest,
    ModelRequest,
    NamedFunction,
    SamplingFields,
)
from server.response_format import AnyFormat

B = TypeVar("B", bound=ModelRequest)

ANY_MODEL = "rejoinder"
"""A name for the server's model, whatever it is."""

_RETRY_AFTER_S = 1
"""A completion takes seconds."""

_MAX_SEED = 1 << 63
"""Seeds of clients may be negative or larger; torch takes 64 bits."""


class RequestLimit:
    """Counts the requests of one kind that are being answered. One key leaves a quarter of the places to others.

    Args:
        admission: counts those that are refused.
        most: at the same time.
        code: of the refusal.
        state: what there are too many of, such as "completions are being generated".
    """

    def __init__(self, admission: Admission, most: int, code: RefusalCode, state: str) -> None:
        self._admission, self._most, self._code = admission, most, code
        self._active = Counter[str]()
        self._message = f"{most} {state}: try again soon"

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Counts one request, unless it belongs to a batch, which has another limit. Raises Refused if there are too
        many."""
        if in_bulk.get():
            yield
            return
        key = current_key()
        most_of_key = self._most if key == NO_KEY else self._most - self._most // 4
        if self._active.total() >= self._most or self._active[key] >= most_of_key:
            raise self._admission.refusal(self._code, self._message, _RETRY_AFTER_S)
        self._active[key] += 1
        try:
            yield
        finally:
            self._active[key] -= 1


class TextEndpoint:
    """What the endpoints that generate text have in common.

    Args:
        engine: shared with the voice conversations.
        model: the name that requests may give.
        limit: shared with the other endpoints.
    """

    def __init__(self, engine: Engine, model: str, limit: RequestLimit) -> None:
        self._engine, self._model, self._limit = engine, model, limit

    async def _read(self, request: Request, body_type: type[B]) -> B:
        """The body of a request for this server's model. Raises APIError."""
        body = await read_json(request, body_type)
        check_model(body.model, self._model)
        return body

    def _envelope(self, kind: str, prefix: str) -> dict[str, Any]:
        """The first fields of a response."""
        return {
            "id": f"{prefix}-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": self._model,
        }  # fmt: skip


def check_model(name: str | None, served: str) -> None:
    """Raise APIError if `name` is not the model that this server has."""
    if name not in (None, ANY_MODEL, served):
        raise APIError(
            404,
            f"the model {name!r} does not exist here: this server has {served!r} (or {ANY_MODEL!r})",
            "model",
            "model_not_found",
        )


def conversation_messages(messages: Sequence[ChatMessage]) -> list[Message]:
    """The conversation, with `developer` messages as instructions."""
    return [
        Message(
            "system" if message.role == "developer" else message.role,
            message.text,
            tuple(ToolCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()),
            message.tool_call_id,
        )
        for message in messages
    ]


def tool_options(
    functions: Sequence[FunctionDefinition],
    choice: str | NamedFunction | None,
    parallel: bool | None,
    most: int | None = None,
) -> dict[str, Any]:
    """The fields of `Ask` for functions."""
    if not functions:
        return {}
    return {
        "tools": [_tool(function) for function in functions],
        "tool_choice": NamedTool(choice.name) if isinstance(choice, NamedFunction) else choice or "auto",
        "parallel_tool_calls": bool(parallel),
        "max_tool_calls": most,
    }


def _tool(function: FunctionDefinition) -> Tool:
    """A tool; without parameters it takes an empty object."""
    tool = Tool(function.name, function.description or "")
    return tool if function.parameters is None else replace(tool, parameters=function.parameters)


async def check_format(engine: Engine, wanted: AnyFormat | None, field: str) -> None:
    """Raise APIError if the form in this field of a request cannot be enforced, before anything is generated."""
    if wanted is None or (grammar := wanted.as_grammar) is None:
        return
    try:
        await asyncio.to_thread(engine.model.grammars.compile, grammar)
    except InvalidGrammar as error:
        raise APIError(400, str(error), f"{field}.{wanted.path_of(error.path)}", "invalid_value") from None


def requested_sampling(body: GenerationRequest, default: Sampling) -> Sampling:
    """The server's sampling, with what a request asks for."""
    given = {name: value for name in body.SAMPLING_FIELDS if (value := getattr(body, name)) is not None}
    return replace(default, **given)


def samplings(body: SamplingFields, default: Sampling, choices: int = 1) -> list[Sampling]:
    """The sampling of each choice. Choices of a seeded request have seeds of their own, which follow from its seed."""
    sampling = requested_sampling(body, default)
    if body.top_k is not None:
        sampling = replace(sampling, top_k=max(0, body.top_k))
    if body.seed is None:
        return [sampling] * choices
    return [replace(sampling, seed=(body.seed + choice) % _MAX_SEED) for choice in range(choices)]
