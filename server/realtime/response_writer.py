"""Writes a response to the wire: its Realtime events, in the order that clients expect."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from server.realtime.events import ENCODINGS, ServerEvent, SessionConfig, server_event
from voice import events as session_events
from voice.audio.codec import OUTPUT_RATE, Encoding, Samples, encode
from voice.audio.resampling import Resampler
from voice.history import Item


def item_object(item: Item) -> dict[str, Any]:
    """The item in the protocol's format."""
    content: list[dict[str, str | None]]
    if item.role == "assistant":
        content = [
            {"type": "output_audio", "transcript": item.heard_text}
            if item.spoken
            else {"type": "output_text", "text": item.text}
        ]
    elif item.spoken:
        content = [{"type": "input_audio", "transcript": item.text or None}]  # @openai/agents requires the null
    else:
        content = [{"type": "input_text", "text": item.text}]
    return {
        "id": item.id,
        "object": "realtime.item",
        "type": "message",
        "role": item.role,
        "status": "completed" if item.complete else "in_progress",
        "content": content,
    }


class ResponseWriter:
    """Sends the events of one conversation's responses, one response at a time."""

    def __init__(self, send: Callable[[ServerEvent], None], conversation_id: str) -> None:
        self._send, self._conversation_id = send, conversation_id
        self._response: dict[str, Any] = {}
        self._position: dict[str, Any] = {}
        self._transcript = ""
        self._resampler = Resampler(OUTPUT_RATE, OUTPUT_RATE)
        self._encoding: Encoding = "pcm"

    def start(
        self, started: session_events.ResponseStarted, config: SessionConfig, metadata: dict[str, str] | None = None
    ) -> None:
        """Send `response.created` to `response.content_part.added`.

        Args:
            config: the configuration of this response.
            metadata: the client's own data, echoed.
        """
        item = started.item
        output = config.audio.output
        self._response = {
            "id": started.response_id,
            "object": "realtime.response",
            "status": "in_progress",
            "status_details": None,
            "output": [],
            "conversation_id": self._conversation_id,
            "output_modalities": ["audio" if item.spoken else "text"],
            "max_output_tokens": config.max_output_tokens,
            "audio": {"output": {"format": output.format.model_dump(), "voice": output.voice}},
            "metadata": metadata,
            "usage": None,
        }
        self._transcript = ""
        self._resampler = Resampler(OUTPUT_RATE, output.format.rate)
        self._encoding = ENCODINGS[output.format.type]
        self._position = {"response_id": started.response_id, "output_index": 0}
        empty_item = {**item_object(item), "content": []}
        self._send(server_event("response.created", response=self._response))
        self._send(server_event("response.output_item.added", item=empty_item, **self._position))
        self._send(server_event("conversation.item.added", item=empty_item, previous_item_id=started.previous_id))
        self._position |= {"item_id": item.id, "content_index": 0}
        part = {"type": "audio", "transcript": ""} if item.spoken else {"type": "text", "text": ""}
        self._send(server_event("response.content_part.added", part=part, **self._position))

    def text_delta(self, event: session_events.ResponseText) -> None:
        """Send text of the response."""
        self._transcript += event.text
        kind = "output_audio_transcript" if self._spoken else "output_text"
        self._send(server_event(f"response.{kind}.delta", delta=event.text, **self._position))

    def audio_delta(self, event: session_events.ResponseAudio) -> None:
        """Send audio of the response."""
        self._send_audio(self._resampler.push(event.samples))

    def done(self, done: session_events.ResponseDone, *, include_turn_event: bool) -> None:
        """Send the closing events, up to `response.done` and, if requested, `rejoinder.turn`."""
        position, text = self._position, self._transcript
        status = "completed" if done.status == "completed" else "incomplete"
        if self._spoken:
            self._send_audio(self._resampler.push(session_events.NO_SAMPLES, last=True))
            self._send(server_event("response.output_audio.done", **position))
            self._send(server_event("response.output_audio_transcript.done", transcript=text, **position))
            part: dict[str, Any] = {"type": "audio", "transcript": text}
        else:
            self._send(server_event("response.output_text.done", text=text, **position))
            part = {"type": "text", "text": text}
        self._send(server_event("response.content_part.done", part=part, **position))
        item = {**item_object(done.item), "status": status}
        item_position = {"response_id": position["response_id"], "output_index": 0}
        self._send(server_event("response.output_item.done", item=item, **item_position))
        self._send(server_event("conversation.item.done", item=item))
        self._response = {
            **self._response,  # a copy: `response.created` may still be in the send queue
            "status": done.status,
            "status_details": _status_details(done),
            "output": [item],
            "usage": _usage(done),
        }
        self._send(server_event("response.done", response=self._response))
        if include_turn_event:
            self._send(turn_event(done))

    @property
    def _spoken(self) -> bool:
        return bool(self._response["output_modalities"] == ["audio"])

    def _send_audio(self, samples: Samples) -> None:
        if len(samples):
            delta = base64.b64encode(encode(samples, self._encoding)).decode("ascii")
            self._send(server_event("response.output_audio.delta", delta=delta, **self._position))


def turn_event(done: session_events.ResponseDone) -> ServerEvent:
    """The `rejoinder.turn` event: the metrics of the turn that this response completes."""
    metrics = done.metrics
    return server_event(
        "rejoinder.turn",
        turn_id=metrics.turn_id,
        response_id=done.response_id,
        item_id=done.item.id,
        latency_ms=metrics.latency_ms(),
        stages_ms=metrics.stages_ms(),
        steps=metrics.steps,
        tokens=metrics.tokens,
        prompt_tokens=metrics.prompt_tokens,
        cached_tokens=metrics.cached_tokens,
        guesses=metrics.speculations,
        guess_kept=metrics.speculation_used,
        waited_ms=metrics.waited_ms,
        over=metrics.end_probability,
        drafts_spoken=metrics.drafts_spoken,
        drafts_dropped=metrics.drafts_dropped,
    )


def _status_details(done: session_events.ResponseDone) -> dict[str, Any] | None:
    if done.status == "completed":
        return None
    if done.status == "failed":
        error = {"type": "server_error", "code": "answer_failed", "message": done.reason}
        return {"type": "failed", "error": error}
    return {"type": done.status, "reason": done.reason}


def _usage(done: session_events.ResponseDone) -> dict[str, Any]:
    """Text tokens. Audio has no tokens here."""
    metrics = done.metrics
    return {
        "total_tokens": metrics.prompt_tokens + metrics.tokens,
        "input_tokens": metrics.prompt_tokens,
        "output_tokens": metrics.tokens,
        "input_token_details": {
            "text_tokens": metrics.prompt_tokens,
            "audio_tokens": 0,
            "cached_tokens": metrics.cached_tokens,
            "cached_tokens_details": {"text_tokens": metrics.cached_tokens, "audio_tokens": 0},
        },
        "output_token_details": {"text_tokens": metrics.tokens, "audio_tokens": 0},
    }
