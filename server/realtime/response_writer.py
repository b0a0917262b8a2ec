"""Writes one response to the wire: its Realtime events, in the order that clients expect."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from server.realtime.events import ServerEvent, server_event
from server.realtime.mcp_tools import McpTools
from server.realtime.session_config import ENCODINGS, SessionConfig
from voice import events as session_events
from voice.audio.codec import OUTPUT_RATE, Samples, encode
from voice.audio.resampling import Resampler
from voice.history import FunctionCall, Item


class ResponseWriter:
    """Sends the events of one response.

    Args:
        conversation_id: None if the response is not part of the conversation.
        config: the configuration of this response.
        metadata: the client's own data, echoed.
        mcp_tools: knows which calls are of MCP tools.
    """

    def __init__(
        self,
        send: Callable[[ServerEvent], None],
        started: session_events.ResponseStarted,
        conversation_id: str | None,
        config: SessionConfig,
        metadata: dict[str, str] | None,
        mcp_tools: McpTools,
    ) -> None:
        self._send, self._id, self._spoken, self._mcp = send, started.response_id, started.spoken, mcp_tools
        self._in_conversation = conversation_id is not None
        output = config.audio.output
        self._response = {
            "id": started.response_id,
            "object": "realtime.response",
            "status": "in_progress",
            "status_details": None,
            "output": [],
            "conversation_id": conversation_id,
            "output_modalities": ["audio" if started.spoken else "text"],
            "max_output_tokens": config.max_output_tokens,
            "audio": {"output": {"format": output.format.model_dump(), "voice": output.voice_name}},
            "metadata": metadata,
            "usage": None,
        }
        self._item_ids: list[str] = []
        self._message_position: dict[str, Any] | None = None
        self._transcript = ""
        self._resampler = Resampler(OUTPUT_RATE, output.format.rate)
        self._encoding = ENCODINGS[output.format.type]
        send(server_event("response.created", response=self._response))

    def item_started(self, event: session_events.ResponseItemStarted) -> None:
        """Send that the response has a new item."""
        if isinstance(event.item, FunctionCall):
            self._mcp.started(event.item, in_conversation=self._in_conversation)
        item = self._mcp.item_object(event.item)
        if isinstance(event.item, Item):
            item["content"] = []
        self._item_ids.append(event.item.id)
        self._send(server_event("response.output_item.added", item=item, **self._item_position(event.item.id)))
        if self._in_conversation:
            previous = self._mcp.shown(event.previous_id)
            self._send(server_event("conversation.item.added", item=item, previous_item_id=previous))
        if isinstance(event.item, Item):
            self._message_position = {**self._position(event.item.id), "content_index": 0}
            part = {"type": "audio", "transcript": ""} if self._spoken else {"type": "text", "text": ""}
            self._send(server_event("response.content_part.added", part=part, **self._message_position))

    def text_delta(self, event: session_events.ResponseText) -> None:
        """Send text of the response."""
        assert self._message_position is not None
        self._transcript += event.text
        kind = "output_audio_transcript" if self._spoken else "output_text"
        self._send(server_event(f"response.{kind}.delta", delta=event.text, **self._message_position))

    def audio_delta(self, event: session_events.ResponseAudio) -> None:
        """Send audio of the response."""
        self._send_audio(self._resampler.push(event.samples))

    def arguments_delta(self, event: session_events.FunctionCallArguments) -> None:
        """Send more of a function call's arguments."""
        position = self._position(event.item_id)
        match self._mcp.kind(event.item_id):
            case "function_call":
                event_type, position["call_id"] = "response.function_call_arguments.delta", event.call_id
            case "mcp_call":
                event_type = "response.mcp_call_arguments.delta"
            case "mcp_approval_request":
                return
        self._send(server_event(event_type, delta=event.text, **position))

    def call_done(self, call: FunctionCall) -> None:
        """Send that a function call is complete, or was cancelled."""
        position, kind = self._position(call.id), self._mcp.kind(call.id)
        if call.complete and kind == "function_call":
            fields = {"call_id": call.call_id, "name": call.name, "arguments": call.arguments}
            self._send(server_event("response.function_call_arguments.done", **fields, **position))
        elif call.complete and kind == "mcp_call":
            self._send(server_event("response.mcp_call_arguments.done", arguments=call.arguments, **position))
        if kind == "mcp_call":  # the item is done once the tool has returned
            item_position = self._item_position(call.id)
            item = self._mcp.item_object(call)
            self._send(server_event("response.output_item.done", item=item, **item_position))
        else:
            self._item_done(call, "completed" if call.complete else "incomplete")
        if kind != "mcp_approval_request":
            self._mcp.finished(call, position["output_index"])

    def done(self, done: session_events.ResponseDone) -> None:
        """Send the closing events, up to `response.done`."""
        status = "completed" if done.status == "completed" else "incomplete"
        if self._message_position is not None:
            self._message_done(self._message_position)
            self._item_done(done.item, status)
        output = []
        for item in done.items:
            complete = item.complete if isinstance(item, FunctionCall) else status == "completed"
            output.append(self._finished(item, "completed" if complete else "incomplete"))
        response = {
            **self._response,  # a copy: `response.created` may still be in the send queue
            "status": done.status,
            "status_details": _status_details(done),
            "output": output,
            "usage": _usage(done),
        }
        self._send(server_event("response.done", response=response))

    def _message_done(self, position: dict[str, Any]) -> None:
        text = self._transcript
        if self._spoken:
            self._send_audio(self._resampler.push(session_events.NO_SAMPLES, last=True))
            self._send(server_event("response.output_audio.done", **position))
            self._send(server_event("response.output_audio_transcript.done", transcript=text, **position))
            part: dict[str, Any] = {"type": "audio", "transcript": text}
        else:
            self._send(server_event("response.output_text.done", text=text, **position))
            part = {"type": "text", "text": text}
        self._send(server_event("response.content_part.done", part=part, **position))

    def _item_done(self, item: Item | FunctionCall, status: str) -> None:
        finished = self._finished(item, status)
        self._send(server_event("response.output_item.done", item=finished, **self._item_position(item.id)))
        if self._in_conversation:
            self._send(server_event("conversation.item.done", item=finished))

    def _finished(self, item: Item | FunctionCall, status: str) -> dict[str, Any]:
        finished = self._mcp.item_object(item)
        return {**finished, "status": status} if "status" in finished else finished

    def _item_position(self, item_id: str) -> dict[str, Any]:
        return {"response_id": self._id, "output_index": self._item_ids.index(item_id)}

    def _position(self, item_id: str) -> dict[str, Any]:
        return {**self._item_position(item_id), "item_id": item_id}

    def _send_audio(self, samples: Samples) -> None:
        if len(samples) and self._message_position is not None:
            delta = base64.b64encode(encode(samples, self._encoding)).decode("ascii")
            self._send(server_event("response.output_audio.delta", delta=delta, **self._message_position))


def _status_details(done: session_events.ResponseDone) -> dict[str, Any] | None:
    if done.status == "completed":
        return None
    if done.status == "failed":
        error = {"type": "server_error", "code": "answer_failed", "message": done.reason}
        return {"type": "failed", "error": error}
    return {"type": done.status, "reason": done.reason}


def _usage(done: session_events.ResponseDone) -> dict[str, Any]:
    """Text tokens, here and elsewhere. Audio has no tokens here."""
    metrics = done.metrics
    read = metrics.prompt_tokens + sum(request.input_tokens for request in metrics.remote)
    generated = metrics.tokens + sum(request.output_tokens for request in metrics.remote)
    return {
        "total_tokens": read + generated,
        "input_tokens": read,
        "output_tokens": generated,
        "input_token_details": {
            "text_tokens": read,
            "audio_tokens": 0,
            "cached_tokens": metrics.cached_tokens,
            "cached_tokens_details": {"text_tokens": metrics.cached_tokens, "audio_tokens": 0},
        },
        "output_token_details": {"text_tokens": generated, "audio_tokens": 0},
    }
