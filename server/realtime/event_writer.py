"""Translates the events of a voice session into server events."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from server.access.admission import Slot
from server.access.usage import Usage
from server.observability.observers import TurnObservers
from server.observability.turn_log import TurnRecord, last_user_text
from server.realtime.events import ErrorDetail, ServerEvent, error_event, server_event
from server.realtime.items import item_object
from server.realtime.mcp_tools import McpTools
from server.realtime.response_writer import ResponseWriter, turn_event
from server.realtime.session_config import SessionConfig
from voice import events as session_events
from voice.history import FunctionCall, FunctionCallOutput, HistoryItem, new_id
from voice.turn_metrics import TurnMetrics
from voice.word_alignment import TokenLogprob

_TRANSCRIPTION = "conversation.item.input_audio_transcription"


@dataclass(frozen=True)
class ResponseTag:
    """What a response that the client requested is reported with."""

    config: SessionConfig
    metadata: dict[str, str] | None


class EventWriter:
    """Sends the server events of one conversation.

    Args:
        items: returns the items of the conversation.
        observers: take note of every completed turn.
        slot: counts the tokens of turns.
        mcp_tools: knows which calls are of MCP tools.

    Attributes:
        config: the configuration of the session.
    """

    def __init__(
        self,
        send: Callable[[ServerEvent], None],
        config: SessionConfig,
        items: Callable[[], Sequence[HistoryItem]],
        observers: TurnObservers,
        slot: Slot,
        mcp_tools: McpTools,
    ) -> None:
        self.config, self._mcp = config, mcp_tools
        self._send, self._items, self._observers, self._slot = send, items, observers, slot
        self._conversation_id = new_id("conv")
        self._responses: dict[str, ResponseWriter] = {}
        self._captions: dict[str, str] = {}

    def includes(self, extension: str) -> bool:
        """Whether the client asked for an extension event."""
        return extension in (self.config.include or ())

    def write(self, event: session_events.SessionEvent) -> None:
        """Send what a session event means for the client."""
        match event:
            case (
                session_events.SpeechStarted()
                | session_events.SpeechStopped()
                | session_events.InputCommitted()
                | session_events.IdleTimeout()
                | session_events.ItemAdded()
            ):
                self._write_input(event)
            case (
                session_events.PartialTranscript()
                | session_events.FinalTranscript()
                | session_events.TranscriptionFailed()
            ):
                if self.config.audio.input.transcription is not None:
                    self._write_transcript(event)
            case session_events.PhaseChanged():
                if self.includes("rejoinder.phase"):
                    self._send(server_event("rejoinder.phase", phase=event.phase))
            case _:
                self._write_response(event)

    def item_added(self, item: HistoryItem, previous_id: str | None) -> None:
        """Send that the conversation has a new, finished item."""
        written = item_object(item)
        self._send(server_event("conversation.item.added", item=written, previous_item_id=previous_id))
        finished = {**written, "status": "completed"}
        self._send(server_event("conversation.item.done", item=finished, previous_item_id=previous_id))

    def _write_input(
        self,
        event: session_events.SpeechStarted
        | session_events.SpeechStopped
        | session_events.InputCommitted
        | session_events.IdleTimeout
        | session_events.ItemAdded,
    ) -> None:
        match event:
            case session_events.SpeechStarted(item_id=item_id, audio_start_ms=start_ms):
                self._send(server_event("input_audio_buffer.speech_started", item_id=item_id, audio_start_ms=start_ms))
            case session_events.SpeechStopped(item_id=item_id, audio_end_ms=end_ms):
                self._send(server_event("input_audio_buffer.speech_stopped", item_id=item_id, audio_end_ms=end_ms))
            case session_events.InputCommitted(item=item, previous_id=previous):
                self._send(server_event("input_audio_buffer.committed", item_id=item.id, previous_item_id=previous))
                self.item_added(item, previous)
            case session_events.IdleTimeout(item_id=item_id, start_ms=start_ms, end_ms=end_ms):
                span = {"audio_start_ms": start_ms, "audio_end_ms": end_ms}
                self._send(server_event("input_audio_buffer.timeout_triggered", item_id=item_id, **span))
            case session_events.ItemAdded(item=item, previous_id=previous):
                if not (isinstance(item, FunctionCallOutput) and self._mcp.returned(item)):
                    self.item_added(item, previous)

    def _write_transcript(
        self,
        event: session_events.PartialTranscript | session_events.FinalTranscript | session_events.TranscriptionFailed,
    ) -> None:
        position: dict[str, Any] = {"item_id": event.item_id, "content_index": 0}
        match event:
            case session_events.PartialTranscript(stable=stable, unstable=unstable):
                if self.config.type == "transcription":
                    self._write_caption(event.item_id, stable)
                if self.includes("rejoinder.transcript"):
                    fields = {"item_id": event.item_id, "stable": stable, "unstable": unstable}
                    self._send(server_event("rejoinder.transcript", **fields))
            case session_events.FinalTranscript(text=text, seconds=seconds, words=words):
                self._write_caption(event.item_id, text)
                self._captions.pop(event.item_id, None)
                usage = {"type": "duration", "seconds": seconds}
                if self.includes("item.input_audio_transcription.logprobs"):
                    position["logprobs"] = [_logprob(token) for word in words for token in word.tokens]
                self._send(server_event(f"{_TRANSCRIPTION}.completed", transcript=text, usage=usage, **position))
                if self.includes("rejoinder.words"):
                    timed = [{"word": word.text, "start": word.start_s, "end": word.end_s} for word in words]
                    self._send(server_event("rejoinder.words", item_id=event.item_id, words=timed))
            case session_events.TranscriptionFailed(reason=reason):
                error = {"type": "server_error", "code": "transcription_failed", "message": reason}
                self._send(server_event(f"{_TRANSCRIPTION}.failed", error=error, **position))

    def _write_caption(self, item_id: str, text: str) -> None:
        """Send what was added to a transcript. Deltas cannot be taken back: words that came out differently in the end
        are corrected by the `completed` event only."""
        sent = self._captions.setdefault(item_id, "")
        if len(text) > len(sent) and text.startswith(sent):
            self._captions[item_id] = text
            position = {"item_id": item_id, "content_index": 0}
            self._send(server_event(f"{_TRANSCRIPTION}.delta", delta=text[len(sent) :], **position))

    def _write_response(self, event: session_events.SessionEvent) -> None:
        match event:
            case session_events.ResponseStarted(tag=tag):
                config, metadata = (tag.config, tag.metadata) if isinstance(tag, ResponseTag) else (self.config, None)
                conversation_id = self._conversation_id if event.in_conversation else None
                self._responses[event.response_id] = ResponseWriter(
                    self._send, event, conversation_id, config, metadata, self._mcp
                )
            case session_events.ResponseItemStarted():
                self._responses[event.response_id].item_started(event)
            case session_events.ResponseSources() if self.includes("rejoinder.sources"):
                sources = [asdict(passage) for passage in event.passages]
                ids = {"response_id": event.response_id, "item_id": event.item_id}
                self._send(server_event("rejoinder.sources", **ids, sources=sources))
            case session_events.ResponseText():
                self._responses[event.response_id].text_delta(event)
            case session_events.ResponseAudio():
                self._responses[event.response_id].audio_delta(event)
            case session_events.FunctionCallArguments():
                self._responses[event.response_id].arguments_delta(event)
            case session_events.FunctionCallDone():
                self._responses[event.response_id].call_done(event.item)
            case session_events.ResponseDone():
                self._write_response_done(event)
            case session_events.WordsSent(request=request) if self.includes("rejoinder.remote"):
                names = ("host", "leaves_machine", "model", "reason")
                sent = {name: getattr(request, name) for name in names}
                self._send(server_event("rejoinder.remote", response_id=event.response_id, **sent))
            case session_events.ResponseDraft() if self.includes("rejoinder.draft"):
                fields = {name: getattr(event, name) for name in ("committed", "draft", "denoised", "step", "origin")}
                confidence = [round(chance, 3) for chance in event.confidence]
                self._send(
                    server_event("rejoinder.draft", response_id=event.response_id, confidence=confidence, **fields)
                )

    def _write_response_done(self, done: session_events.ResponseDone) -> None:
        self._responses.pop(done.response_id).done(done)
        if done.status == "failed":
            message = f"the response {done.response_id} failed: {done.reason}"
            self._send(error_event(ErrorDetail(type="server_error", code="response_failed", message=message)))
        turn = turn_event(done)
        if self.includes("rejoinder.turn"):
            self._send(turn)
        self._count(done.metrics)
        transcript = last_user_text(self._items(), done.items[0]) if done.items else ""
        calls = [f"{item.name}({item.arguments})" for item in done.items if isinstance(item, FunctionCall)]
        response = " ".join([done.item.heard_text, *calls]).strip()
        speech_end = done.metrics.stamps.get("speech_end")
        ended_at = None if speech_end is None else time.time() - (time.monotonic() - speech_end)
        record = TurnRecord.from_event(turn.model_dump(), done.status, transcript, response, ended_at)
        self._observers.record_turn(replace(record, key=self._slot.meter.key, caller=self._slot.caller))

    def _count(self, metrics: TurnMetrics) -> None:
        """Count a turn for its key."""
        self._slot.meter.add(
            Usage(
                turns=1,
                input_tokens=metrics.prompt_tokens,
                cached_tokens=metrics.cached_tokens,
                output_tokens=metrics.tokens,
                remote_requests=len(metrics.remote),
                remote_input_tokens=sum(request.input_tokens for request in metrics.remote),
                remote_output_tokens=sum(request.output_tokens for request in metrics.remote),
            )
        )


def _logprob(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token.token, "logprob": token.logprob, "bytes": list(token.token.encode())}
