"""OpenAI's chat completions, without sockets: the body of a request, and what its stream of events says.

Source: the openai-python SDK's `types/chat`. Servers differ in details, so what is read is tolerant, and limited.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from chat.types import Ask, Message

MAX_CHARACTERS = 32_000
"""Text and arguments of one response: half an hour of speech."""

MAX_CALLS = 16

_THINK, _END_THINK = "<think>", "</think>"
"""Some servers leave the notes of a reasoning model in the text. They are not for the user."""


class RemoteFailed(Exception):
    """A request failed.

    Args:
        message: a sentence without its subject, such as "refuses the key (HTTP 401)".
        retry_after_s: for how long the server asks to be left alone.
        server_failed: whether the next request would probably fail as well.
    """

    def __init__(self, message: str, retry_after_s: float = 0.0, *, server_failed: bool = True) -> None:
        super().__init__(message)
        self.retry_after_s, self.server_failed = retry_after_s, server_failed


def request_body(model: str, ask: Ask) -> dict[str, Any]:
    """The JSON of a request. Fields that not every server knows are only there if they are needed."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [_message(message) for message in ask.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if ask.max_tokens is not None:
        body["max_tokens"] = ask.max_tokens
    if ask.effort is not None:
        body["reasoning_effort"] = ask.effort
    if ask.tools and ask.tool_choice != "none":
        functions = [
            {"name": t.name, "description": t.description, "parameters": dict(t.parameters)} for t in ask.tools
        ]
        body["tools"] = [{"type": "function", "function": function} for function in functions]
        body["tool_choice"] = ask.tool_choice
        if not isinstance(ask.tool_choice, str):
            body["tool_choice"] = {"type": "function", "function": {"name": ask.tool_choice.name}}
        body["parallel_tool_calls"] = ask.parallel_tool_calls
    return body


def _message(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        fields["content"] = message.content or None
        fields["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    return fields


class _FunctionPart(BaseModel):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _CallPart(BaseModel):
    index: int | None = None
    id: str | None = None
    function: _FunctionPart = _FunctionPart()


class _Delta(BaseModel):
    content: str | None = None
    tool_calls: list[_CallPart] | None = None


class _Choice(BaseModel):
    delta: _Delta = _Delta()
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Chunk(BaseModel):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


@dataclass
class RemoteCall:
    """A function call as received so far. `arguments` is JSON text."""

    name: str = ""
    arguments: str = ""
    id: str = ""


@dataclass
class ChatStream:
    """Reads one stream, line by line.

    Attributes:
        calls: function calls; complete when `finish_reason` is set.
        finish_reason: why the response ended, once it has.
        usage: tokens of the prompt and of the response, once the server has reported them.
        has_begun: whether there is text or a call.
        done: whether the server has said that nothing follows.
    """

    calls: list[RemoteCall] = field(default_factory=list)
    finish_reason: str | None = None
    usage: tuple[int, int] | None = None
    has_begun: bool = False
    done: bool = False
    _held: str | None = ""
    _thinking: bool = False
    _positions: dict[int, int] = field(default_factory=dict)
    _size: int = 0

    def feed(self, line: str) -> str:
        """Take one line of server-sent events; returns the text that it adds to the response. Raises RemoteFailed."""
        name, _, data = line.partition(":")
        if name != "data" or not data.strip():
            return ""
        if data.strip() == "[DONE]":
            self.done = True
            return self._release()
        try:
            chunk = _Chunk.model_validate_json(data)
        except ValidationError:
            raise RemoteFailed("sent something that is not a chat completion") from None
        if chunk.error is not None:
            raise RemoteFailed("reported an error in the middle of the answer")
        if chunk.usage is not None:
            self.usage = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
        text = ""
        for choice in chunk.choices[:1]:
            text += self._text(choice.delta.content or "")
            for part in choice.delta.tool_calls or ():
                self._add_call(part)
            if choice.finish_reason is not None:
                self.finish_reason = choice.finish_reason
                text += self._release()
        self.has_begun = self.has_begun or bool(self.calls) or bool(text.strip())
        return text

    def _text(self, text: str) -> str:
        """Text without the notes that it may begin with."""
        self._count(text)
        if self._held is None:
            return text
        self._held += text
        start = self._held.lstrip()
        if self._thinking or start.startswith(_THINK):
            self._thinking = True
            _, end, rest = start.partition(_END_THINK)
            if not end:
                return ""
            self._held = None
            return rest.lstrip()
        return "" if _THINK.startswith(start) else self._release()

    def _release(self) -> str:
        """The text that was held because notes might have begun."""
        held, self._held = ("" if self._thinking else self._held or ""), None
        return held

    def _add_call(self, part: _CallPart) -> None:
        """More of a call. Some servers number all calls 0, and tell them apart by their ids."""
        index = part.index if part.index is not None else len(self._positions)
        position = self._positions.get(index)
        if position is None or (part.id and self.calls[position].id not in ("", part.id)):
            if len(self.calls) >= MAX_CALLS:
                raise RemoteFailed(f"made more than {MAX_CALLS} calls")
            self._positions[index] = position = len(self.calls)
            self.calls.append(RemoteCall())
        call, arguments = self.calls[position], part.function.arguments or ""
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        self._count(text)
        call.id, call.name = call.id or part.id or "", call.name or part.function.name or ""
        call.arguments += text

    def _count(self, text: str) -> None:
        self._size += len(text)
        if self._size > MAX_CHARACTERS:
            raise RemoteFailed(f"sent more than {MAX_CHARACTERS} characters")
