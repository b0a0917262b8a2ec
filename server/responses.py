"""An answer on the wire: the Realtime events of a response, in the order that clients wait for."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from server.protocol import ENCODINGS, ServerEvent, SessionConfig, event
from voice import events
from voice.audio import SPEAKING_RATE, Encoding, Resampler, Samples, encode
from voice.history import Item


def item_object(item: Item) -> dict[str, Any]:
    """An item as the protocol writes it."""
    content: list[dict[str, str | None]]
    if item.role == "assistant":
        content = [
            {"type": "output_audio", "transcript": item.heard}
            if item.spoken
            else {"type": "output_text", "text": item.text}
        ]
    elif item.spoken:
        content = [{"type": "input_audio", "transcript": item.text or None}]  # @openai/agents wants the null
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
    """Writes the responses of one conversation, one at a time."""

    def __init__(self, send: Callable[[ServerEvent], None], conversation_id: str) -> None:
        self._send, self._conversation_id = send, conversation_id
        self._response: dict[str, Any] = {}
        self._where: dict[str, Any] = {}
        self._transcript = ""
        self._resampler = Resampler(SPEAKING_RATE, SPEAKING_RATE)
        self._encoding: Encoding = "pcm"

    def start(
        self, started: events.AnswerStarted, config: SessionConfig, metadata: dict[str, str] | None = None
    ) -> None:
        """`response.created` up to `response.content_part.added`.

        Args:
            config: what holds for this response.
            metadata: the client's own, echoed.
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
        self._resampler = Resampler(SPEAKING_RATE, output.format.rate)
        self._encoding = ENCODINGS[output.format.type]
        self._where = {"response_id": started.response_id, "output_index": 0}
        opened = {**item_object(item), "content": []}
        self._send(event("response.created", response=self._response))
        self._send(event("response.output_item.added", item=opened, **self._where))
        self._send(event("conversation.item.added", item=opened, previous_item_id=started.previous_id))
        self._where |= {"item_id": item.id, "content_index": 0}
        part = {"type": "audio", "transcript": ""} if item.spoken else {"type": "text", "text": ""}
        self._send(event("response.content_part.added", part=part, **self._where))

    def text(self, more: events.AnswerText) -> None:
        """Words of the answer."""
        self._transcript += more.text
        kind = "output_audio_transcript" if self._spoken else "output_text"
        self._send(event(f"response.{kind}.delta", delta=more.text, **self._where))

    def audio(self, more: events.AnswerAudio) -> None:
        """Sound of the answer."""
        self._send_audio(self._resampler.push(more.samples))

    def done(self, done: events.AnswerDone, *, timeline: bool) -> None:
        """The closing events, up to `response.done`."""
        where, text = self._where, self._transcript
        status = "completed" if done.status == "completed" else "incomplete"
        if self._spoken:
            self._send_audio(self._resampler.push(events.NO_SAMPLES, last=True))
            self._send(event("response.output_audio.done", **where))
            self._send(event("response.output_audio_transcript.done", transcript=text, **where))
            part: dict[str, Any] = {"type": "audio", "transcript": text}
        else:
            self._send(event("response.output_text.done", text=text, **where))
            part = {"type": "text", "text": text}
        self._send(event("response.content_part.done", part=part, **where))
        item = {**item_object(done.item), "status": status}
        outer = {"response_id": where["response_id"], "output_index": 0}
        self._send(event("response.output_item.done", item=item, **outer))
        self._send(event("conversation.item.done", item=item))
        self._response = {
            **self._response,  # a copy: `response.created` may still wait to be written
            "status": done.status,
            "status_details": _details(done),
            "output": [item],
            "usage": _usage(done),
        }
        self._send(event("response.done", response=self._response))
        if timeline:
            self._send(turn_event(done))

    @property
    def _spoken(self) -> bool:
        return bool(self._response["output_modalities"] == ["audio"])

    def _send_audio(self, samples: Samples) -> None:
        if len(samples):
            delta = base64.b64encode(encode(samples, self._encoding)).decode("ascii")
            self._send(event("response.output_audio.delta", delta=delta, **self._where))


def turn_event(done: events.AnswerDone) -> ServerEvent:
    """`rejoinder.turn`: the timeline of the turn that this answer ends."""
    timeline = done.timeline
    return event(
        "rejoinder.turn",
        turn_id=timeline.turn_id,
        response_id=done.response_id,
        item_id=done.item.id,
        latency_ms=timeline.latency_ms(),
        stages_ms=timeline.stages_ms(),
        steps=timeline.steps,
        tokens=timeline.tokens,
        prompt_tokens=timeline.prompt_tokens,
        cached_tokens=timeline.cached_tokens,
        guesses=timeline.guesses,
        guess_kept=timeline.guess_kept,
        waited_ms=timeline.waited_ms,
        over=timeline.over,
        drafts_spoken=timeline.drafts_spoken,
        drafts_dropped=timeline.drafts_dropped,
    )


def _details(done: events.AnswerDone) -> dict[str, Any] | None:
    if done.status == "completed":
        return None
    if done.status == "failed":
        error = {"type": "server_error", "code": "answer_failed", "message": done.reason}
        return {"type": "failed", "error": error}
    return {"type": done.status, "reason": done.reason}


def _usage(done: events.AnswerDone) -> dict[str, Any]:
    """Tokens of text; sound is not made of tokens here."""
    timeline = done.timeline
    return {
        "total_tokens": timeline.prompt_tokens + timeline.tokens,
        "input_tokens": timeline.prompt_tokens,
        "output_tokens": timeline.tokens,
        "input_token_details": {
            "text_tokens": timeline.prompt_tokens,
            "audio_tokens": 0,
            "cached_tokens": timeline.cached_tokens,
            "cached_tokens_details": {"text_tokens": timeline.cached_tokens, "audio_tokens": 0},
        },
        "output_token_details": {"text_tokens": timeline.tokens, "audio_tokens": 0},
    }
