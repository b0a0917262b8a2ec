"""Translates the events of a voice session into server events."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agent.tools.user_data import Alarm
from server.access.admission import Slot
from server.access.usage import Usage
from server.context import ServerContext
from server.observability.turn_log import TurnRecord, last_user_text
from server.realtime.caption_writer import CaptionWriter
from server.realtime.dictation_writer import DictationWriter
from server.realtime.events import ServerEvent, error_event, server_event
from server.realtime.items import item_object
from server.realtime.mcp_tools import McpTools
from server.realtime.response_writer import ResponseWriter
from server.realtime.session_config import CAPTIONS, SessionConfig
from server.speech_times import viseme_times, word_times
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
        context: its observers take note of every completed turn, and its listeners find the captions.
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
        context: ServerContext,
        slot: Slot,
        mcp_tools: McpTools,
    ) -> None:
        self.config, self._mcp = config, mcp_tools
        self._send, self._items, self._observers, self._slot = send, items, context.observers, slot
        self._conversation_id = new_id("conv")
        self._responses: dict[str, ResponseWriter] = {}
        self._deltas: dict[str, str] = {}
        self._captions = CaptionWriter(self._extend, context.captions)
        self._dictation = DictationWriter(lambda: context.dictation, send)

    def includes(self, extension: str) -> bool:
        """Whether the client asked for an extension event."""
        return extension in (self.config.include or ())

    def begin_extensions(self) -> None:
        """Begin what the configuration asks for beyond the protocol."""
        if self.includes("rejoinder.listeners"):
            self._captions.share()
        if self._cleans:
            self._dictation.prepare()

    async def close(self) -> None:
        """The session has ended."""
        self._captions.close()
        await self._dictation.close()

    def write(self, event: session_events.SessionEvent) -> None:
        """Send what a session event means for the client."""
        if not CAPTIONS.isdisjoint(self.config.include or ()):
            self._captions.write(event)
        match event:
            case session_events.SpeechStarted(item_id=item_id, audio_start_ms=start_ms):
                self._emit("input_audio_buffer.speech_started", item_id=item_id, audio_start_ms=start_ms)
            case session_events.SpeechStopped(item_id=item_id, audio_end_ms=end_ms):
                self._emit("input_audio_buffer.speech_stopped", item_id=item_id, audio_end_ms=end_ms)
            case session_events.InputCommitted(item=item, previous_id=previous):
                self._emit("input_audio_buffer.committed", item_id=item.id, previous_item_id=self._mcp.shown(previous))
                self.item_added(item, previous)
            case session_events.IdleTimeout(item_id=item_id, start_ms=start_ms, end_ms=end_ms):
                span = {"audio_start_ms": start_ms, "audio_end_ms": end_ms}
                self._emit("input_audio_buffer.timeout_triggered", item_id=item_id, **span)
            case session_events.ItemAdded(item=item, previous_id=previous):
                if not (isinstance(item, FunctionCallOutput) and self._mcp.returned(item)):
                    self.item_added(item, previous)
            case session_events.PartialTranscript() if self._transcribes:
                if self.config.type == "transcription":
                    self._write_delta(event.item_id, event.stable)
                if self._cleans:
                    self._dictation.read_ahead(f"{event.stable} {event.unstable}".strip())
                self._extend(
                    "rejoinder.transcript", item_id=event.item_id, stable=event.stable, unstable=event.unstable
                )
            case session_events.FinalTranscript() if self._transcribes:
                self._write_transcript(event)
            case session_events.TranscriptionFailed(item_id=item_id, reason=reason) if self._transcribes:
                error = {"type": "server_error", "code": "transcription_failed", "message": reason}
                self._emit(f"{_TRANSCRIPTION}.failed", error=error, item_id=item_id, content_index=0)
            case session_events.PhaseChanged(phase=phase):
                self._extend("rejoinder.phase", phase=phase)
            case session_events.ResponseStarted(response_id=response_id, tag=tag):
                config, metadata = (tag.config, tag.metadata) if isinstance(tag, ResponseTag) else (self.config, None)
                conversation_id = self._conversation_id if event.in_conversation else None
                self._responses[response_id] = ResponseWriter(
                    self._send, event, conversation_id, config, metadata, self._mcp
                )
            case session_events.ResponseItemStarted(response_id=response_id):
                self._responses[response_id].item_started(event)
            case session_events.ResponseSources(response_id=response_id, item_id=item_id, passages=passages):
                sources = [asdict(passage) for passage in passages]
                self._extend("rejoinder.sources", response_id=response_id, item_id=item_id, sources=sources)
            case session_events.ResponseText(response_id=response_id):
                self._responses[response_id].text_delta(event)
            case session_events.ResponseTimes(times=times):
                position = {"response_id": event.response_id, "item_id": event.item_id}
                if times.words:
                    self._extend("rejoinder.words", **position, words=word_times(times))
                if times.visemes:
                    self._extend("rejoinder.visemes", **position, visemes=viseme_times(times))
            case session_events.ResponseAudio(response_id=response_id):
                self._responses[response_id].audio_delta(event)
            case session_events.FunctionCallArguments(response_id=response_id):
                self._responses[response_id].arguments_delta(event)
            case session_events.FunctionCallDone(response_id=response_id, item=item):
                self._responses[response_id].call_done(item)
            case session_events.ResponseDone():
                self._write_response_done(event)
            case session_events.WordsSent(request=request):
                sent = {name: getattr(request, name) for name in ("host", "leaves_machine", "model", "reason")}
                self._extend("rejoinder.remote", response_id=event.response_id, **sent)
            case session_events.ResponseDraft() if self.includes("rejoinder.draft"):  # it comes with every step
                fields = {name: getattr(event, name) for name in ("committed", "draft", "denoised", "step", "origin")}
                confidence = [round(chance, 3) for chance in event.confidence]
                self._emit("rejoinder.draft", response_id=event.response_id, confidence=confidence, **fields)

    def write_alarms(self, alarms: Sequence[Alarm], now: float) -> None:
        """Send the timers, alarms and reminders of the user, which are not due yet."""
        ahead = [{"kind": one.kind, "text": one.text, "due_in_s": round(one.due_at - now, 3)} for one in alarms]
        self._extend("rejoinder.alarms", alarms=ahead)

    def _emit(self, type: str, **fields: Any) -> None:
        self._send(server_event(type, **fields))

    def _extend(self, type: str, **fields: Any) -> None:
        """Send an extension event, if the client asked for it."""
        if self.includes(type):
            self._emit(type, **fields)

    @property
    def _cleans(self) -> bool:
        transcription = self.config.audio.input.transcription
        return transcription is not None and bool(transcription.clean)

    @property
    def _transcribes(self) -> bool:
        return self.config.audio.input.transcription is not None

    def item_added(self, item: HistoryItem, previous_id: str | None) -> None:
        """Send that the conversation has a new, finished item."""
        written = item_object(item)
        previous_id = self._mcp.shown(previous_id)
        self._emit("conversation.item.added", item=written, previous_item_id=previous_id)
        self._emit("conversation.item.done", item={**written, "status": "completed"}, previous_item_id=previous_id)

    def _write_transcript(self, final: session_events.FinalTranscript) -> None:
        item_id, words = final.item_id, final.words
        self._write_delta(item_id, final.text)
        self._deltas.pop(item_id, None)
        position: dict[str, Any] = {"item_id": item_id, "content_index": 0}
        if self.includes("item.input_audio_transcription.logprobs"):
            position["logprobs"] = [_logprob(token) for word in words for token in word.tokens]
        usage = {"type": "duration", "seconds": final.seconds}
        self._emit(f"{_TRANSCRIPTION}.completed", transcript=final.text, usage=usage, **position)
        timed = [{"word": word.text, "start": word.start_s, "end": word.end_s} for word in words]
        self._extend("rejoinder.words", item_id=item_id, words=timed)
        if self._cleans:
            self._dictation.add(item_id, final.text)

    def _write_delta(self, item_id: str, text: str) -> None:
        """Send what was added to a transcript. Deltas cannot be taken back: words that came out differently in the end
        are corrected by the `completed` event only."""
        sent = self._deltas.setdefault(item_id, "")
        if len(text) > len(sent) and text.startswith(sent):
            self._deltas[item_id] = text
            self._emit(f"{_TRANSCRIPTION}.delta", delta=text[len(sent) :], item_id=item_id, content_index=0)

    def _write_response_done(self, done: session_events.ResponseDone) -> None:
        self._responses.pop(done.response_id).done(done)
        if done.status == "failed":
            message = f"the response {done.response_id} failed: {done.reason}"
            self._send(error_event(message, "response_failed"))
        metrics, details = done.metrics, _turn_details(done.metrics)
        latency_ms, stages_ms = metrics.latency_ms(), metrics.stages_ms()
        self._extend(
            "rejoinder.turn",
            turn_id=metrics.turn_id,
            response_id=done.response_id,
            item_id=done.items[0].id if done.items else None,
            latency_ms=latency_ms,
            stages_ms=stages_ms,
            **details,
        )
        self._count(metrics)
        transcript = last_user_text(self._items(), done.items[0]) if done.items else ""
        calls = [f"{item.name}({item.arguments})" for item in done.items if isinstance(item, FunctionCall)]
        speech_end = metrics.stamps.get("speech_end")
        self._observers.record_turn(
            TurnRecord(
                metrics.turn_id,
                time.time(),
                latency_ms,
                stages_ms,
                {name: value for name, value in details.items() if value is not None},
                done.status,
                transcript,
                " ".join([done.item.heard_text, *calls]).strip(),
                self._slot.meter.key,
                self._slot.caller,
                None if speech_end is None else time.time() - (time.monotonic() - speech_end),
            )
        )

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


def _turn_details(metrics: TurnMetrics) -> dict[str, Any]:
    """What is known of a turn beyond its latency and its stages."""
    return {
        "steps": metrics.steps,
        "tokens": metrics.tokens,
        "prompt_tokens": metrics.prompt_tokens,
        "cached_tokens": metrics.cached_tokens,
        "guesses": metrics.speculations,
        "guess_kept": metrics.speculation_used,
        "waited_ms": metrics.waited_ms,
        "spoken_over_after_ms": metrics.spoken_over_after_ms,
        "over": metrics.end_probability,
        "drafts_spoken": metrics.drafts_spoken,
        "drafts_dropped": metrics.drafts_dropped,
        "drafts_shown": metrics.drafts_shown,
        "drafts_kept": metrics.drafts_kept,
        "drafted_by": metrics.drafted_by,
        "decided": [{"policy": decision.policy, "reason": decision.reason} for decision in metrics.decided],
        "tools": [asdict(step) for step in metrics.tools],
        "remote": [asdict(request) for request in metrics.remote],
    }


def _logprob(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token.token, "logprob": token.logprob, "bytes": list(token.token.encode())}
