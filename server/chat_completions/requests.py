"""What requests of several endpoints have in common: the model's name, messages and sampling."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from chat.types import Message, NamedTool, Tool, ToolCall
from model.decode.grammar import InvalidGrammar
from model.decode.sampling import Sampling
from model.engine.engine import Engine
from server.access.admission import Admission, RefusalCode
from server.chat_completions.errors import APIError
from server.chat_completions.schema import ChatCompletionRequest, ChatMessage, SamplingFields
from server.response_format import AnyFormat

ANY_MODEL = "rejoinder"
"""A name for the server's model, whatever it is."""

_RETRY_AFTER_S = 1
"""A completion takes seconds."""

_MAX_SEED = 1 << 63
"""Seeds of clients may be negative or larger; torch takes 64 bits."""


class RequestLimit:
    """Counts the requests of one kind that are being answered.

    Args:
        admission: counts those that are refused.
        most: at the same time.
        code: of the refusal.
        state: what there are too many of, such as "completions are being generated".
    """

    def __init__(self, admission: Admission, most: int, code: RefusalCode, state: str) -> None:
        self._admission, self._most, self._code, self._active = admission, most, code, 0
        self._message = f"{most} {state}: try again soon"

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Counts one request. Raises Refused if there are too many."""
        if self._active >= self._most:
            raise self._admission.refusal(self._code, self._message, _RETRY_AFTER_S)
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1


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


def reply_options(body: ChatCompletionRequest) -> dict[str, Any]:
    """The fields of `Ask` for tools, the form of the answer and log probabilities."""
    options: dict[str, Any] = {"grammar": body.response_format.as_grammar if body.response_format else None}
    if body.logprobs:
        options["top_log_probabilities"] = body.top_logprobs or 0
    if body.tools:
        choice = body.tool_choice or "auto"
        options["tools"] = [
            function_tool(tool.function.name, tool.function.description, tool.function.parameters)
            for tool in body.tools
        ]
        options["tool_choice"] = choice if isinstance(choice, str) else NamedTool(choice.function.name)
        options["parallel_tool_calls"] = bool(body.parallel_tool_calls)
    return options


def function_tool(name: str, description: str | None, parameters: dict[str, Any] | None) -> Tool:
    """A tool; without parameters it takes an empty object."""
    return Tool(name, description or "", parameters) if parameters is not None else Tool(name, description or "")


async def check_format(engine: Engine, wanted: AnyFormat | None, field: str) -> None:
    """Raise APIError if an answer of this form cannot be enforced, before anything is generated.

    Args:
        field: the request's field with the form.
    """
    if wanted is None or (grammar := wanted.as_grammar) is None:
        return
    try:
        await asyncio.to_thread(engine.model.grammars.compile, grammar)
    except InvalidGrammar as error:
        raise APIError(400, str(error), f"{field}.{wanted.path_of(error.path)}", "invalid_value") from None


def samplings(body: SamplingFields, default: Sampling, choices: int) -> list[Sampling]:
    """The sampling of each choice. Choices of a seeded request have seeds of their own, which follow from its seed."""
    given = {name: value for name in ("temperature", "top_p") if (value := getattr(body, name)) is not None}
    if body.top_k is not None:
        given["top_k"] = max(0, body.top_k)
    sampling = replace(default, **given)
    if body.seed is None:
        return [sampling] * choices
    return [replace(sampling, seed=(body.seed + choice) % _MAX_SEED) for choice in range(choices)]
