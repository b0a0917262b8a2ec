"""The output of a response as items, and the events that report how they grow."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from chat.progress import Progress
from chat.types import Message, ToolCall
from server.chat_completions.generation import CollectedCall, collect_calls
from server.chat_completions.logprobs import token_logprobs

Event = dict[str, Any]


class ResponseOutput:
    """A message, then function calls; either may be missing.

    Attributes:
        items: those that are complete.
    """

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self._text = ""
        self._logprobs: list[dict[str, Any]] = []
        self._message_id: str | None = None
        self._calls: list[CollectedCall] = []

    def add(self, progress: Progress) -> Iterator[Event]:
        """The events of one step."""
        if progress.committed:
            yield from self._open_message()
            self._text += progress.committed
            logprobs = token_logprobs(progress.scores)
            self._logprobs += logprobs
            delta = {"delta": progress.committed, "logprobs": logprobs}
            yield {"type": "response.output_text.delta", **self._part(), **delta}
        if progress.tool_calls:
            yield from self._close_message("completed")
        for piece in progress.tool_calls:
            is_new = piece.index == len(self._calls)
            collect_calls(self._calls, [piece])
            call = self._calls[piece.index]
            where = {"output_index": len(self.items)}
            if is_new:
                yield {"type": "response.output_item.added", **where, "item": _call_item(call, "in_progress")}
            if piece.arguments:
                delta = {"item_id": _call_item_id(call), "delta": piece.arguments}
                yield {"type": "response.function_call_arguments.delta", **where, **delta}
            if piece.done:
                yield from self._close_call(call, "completed")

    def close(self, *, complete: bool) -> Iterator[Event]:
        """The events that end the output."""
        status = "completed" if complete else "incomplete"
        if not self._calls and not self.items:
            yield from self._open_message()
        yield from self._close_message(status)
        for call in self._calls:
            if not call.done:
                yield from self._close_call(call, status)

    def message(self) -> Message:
        """The output as it goes into the conversation. Calls that were cut off do not."""
        calls = tuple(ToolCall(call.id, call.name, call.arguments) for call in self._calls if call.done)
        return Message("assistant", self._text, calls)

    def _open_message(self) -> Iterator[Event]:
        if self._message_id is None:
            self._message_id = f"msg_{uuid.uuid4().hex}"
            yield {"type": "response.output_item.added", "output_index": 0, "item": self._message("in_progress")}
            yield {"type": "response.content_part.added", **self._part(), "part": self._content()}

    def _close_message(self, status: str) -> Iterator[Event]:
        if self._message_id is not None and not self.items:
            item = self._message(status)
            done = {"text": self._text, "logprobs": self._logprobs}
            yield {"type": "response.output_text.done", **self._part(), **done}
            yield {"type": "response.content_part.done", **self._part(), "part": self._content()}
            yield {"type": "response.output_item.done", "output_index": 0, "item": item}
            self.items.append(item)

    def _close_call(self, call: CollectedCall, status: str) -> Iterator[Event]:
        where, item = {"output_index": len(self.items)}, _call_item(call, status)
        arguments = {"item_id": item["id"], "name": call.name, "arguments": call.arguments}
        yield {"type": "response.function_call_arguments.done", **where, **arguments}
        yield {"type": "response.output_item.done", **where, "item": item}
        self.items.append(item)

    def _part(self) -> dict[str, Any]:
        return {"item_id": self._message_id, "output_index": 0, "content_index": 0}

    def _message(self, status: str) -> dict[str, Any]:
        content = [] if status == "in_progress" else [self._content()]
        return {
            "type": "message", "id": self._message_id, "role": "assistant", "status": status, "content": content,
        }  # fmt: skip

    def _content(self) -> dict[str, Any]:
        return {"type": "output_text", "text": self._text, "annotations": [], "logprobs": self._logprobs}


def _call_item_id(call: CollectedCall) -> str:
    return f"fc_{call.id.removeprefix('call_')}"


def _call_item(call: CollectedCall, status: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": _call_item_id(call),
        "call_id": call.id,
        "name": call.name,
        "arguments": "" if status == "in_progress" else call.arguments,
        "status": status,
    }
