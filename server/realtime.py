"""One Realtime conversation: client events in, session calls out, session events back to server events.

Sans I/O: text frames go in through `receive`, events come out through `send`. `app.py` owns the socket.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from pydantic import ValidationError

from server import protocol
from server.protocol import ErrorDetail, ServerEvent, SessionConfig, event
from server.responses import ResponseWriter, item_object, turn_event
from server.timelines import TurnRecord, said_before
from voice import events
from voice.audio import BadAudio, decode
from voice.brain import Brain
from voice.history import Item, UnknownItem
from voice.session import Refused, Session
from voice.speaking import Settings, new_id
from voice.stages import Stages
from voice.timing import Timing
from voice.turn import TurnRules

_log = logging.getLogger("rejoinder.server")

MAX_EVENT_BYTES = 1 << 20
"""The largest client event: 16 s of 24 kHz audio. More at once would hold up the other conversations."""

MAX_ITEMS, MAX_LETTERS = 2000, 1_000_000
"""What a client may put into a conversation: some days of talk."""

_SLICE_MS = 200
"""Audio taken in one go before other conversations get a turn."""

_EAGERNESS = {
    "low": Timing(shortest_wait_ms=500, longest_wait_ms=1200, patient_wait_ms=2000),
    "medium": Timing(),
    "auto": Timing(),
    "high": Timing(shortest_wait_ms=160, longest_wait_ms=450, patient_wait_ms=800),
}
"""How long a turn's end is waited for at each eagerness of `semantic_vad`."""


class BadEvent(Exception):
    """A client event that cannot be taken."""

    def __init__(self, message: str, *, code: str = "invalid_value", param: str | None = None) -> None:
        super().__init__(message)
        self.code, self.param = code, param


class RealtimeConversation:
    """One connection's conversation.

    Args:
        brain, stages: what the session is made of.
        model: the language model's name, as the session reports it.
        send: called with every event for the client, on the event loop.
        keep: called with every turn that was answered.
    """

    def __init__(
        self,
        brain: Brain,
        stages: Stages,
        model: str,
        send: Callable[[ServerEvent], None],
        keep: Callable[[TurnRecord], None] | None = None,
    ) -> None:
        self._send, self._model, self._keep = send, model, keep
        self._voice = stages.voice.name
        self._id = new_id("sess")
        self._config = SessionConfig(model=model)
        self._config.audio.output.voice = self._voice
        self._wanted: tuple[SessionConfig, dict[str, str] | None] | None = None
        self._responses = ResponseWriter(send, new_id("conv"))
        self.session = Session(brain, stages, self._on_session_event, self._settings(self._config))
        send(event("session.created", session=self._session_object()))

    async def receive(self, text: str) -> None:
        """Take one text frame. Whatever is wrong with it becomes an `error` event; the conversation goes on."""
        event_id: str | None = None
        try:
            if len(text) > MAX_EVENT_BYTES:
                raise BadEvent(
                    f"this event has {len(text)} bytes, {MAX_EVENT_BYTES} are the most: send audio in smaller pieces",
                    code="event_too_large",
                )
            said = _parse(text)
            event_id = said.get("event_id") if isinstance(said.get("event_id"), str) else None
            await self._take(protocol.CLIENT_EVENT.validate_python(said))
        except ValidationError as error:
            self._refuse(_first_fault(error), event_id)
        except BadEvent as error:
            self._refuse(error, event_id)
        except Refused as error:
            self._refuse(BadEvent(str(error), code=error.code), event_id)
        except UnknownItem as error:
            self._refuse(BadEvent(str(error.args[0]), code="item_not_found", param="item_id"), event_id)
        except Exception as error:
            _log.exception("an event failed; the conversation goes on")
            detail = ErrorDetail(
                type="server_error", code="internal_error", message=f"the server failed: {error}", event_id=event_id
            )
            self._send(protocol.error(detail))

    async def close(self) -> None:
        """The client is gone."""
        await self.session.close()

    async def _take(self, said: protocol.ClientEvent) -> None:
        match said:
            case protocol.SessionUpdate():
                self._update(said.session)
            case protocol.AudioAppend():
                await self._append(said.audio)
            case protocol.AudioCommit():
                self.session.commit()
            case protocol.AudioClear():
                self.session.clear()
                self._send(event("input_audio_buffer.cleared"))
            case protocol.ItemCreate():
                self._create_item(said)
            case protocol.ItemDelete():
                self.session.history.delete(said.item_id)
                self._send(event("conversation.item.deleted", item_id=said.item_id))
            case protocol.ItemRetrieve():
                item = self.session.history.get(said.item_id)
                self._send(event("conversation.item.retrieved", item=item_object(item)))
            case protocol.ItemTruncate():
                self._truncate(said)
            case protocol.ResponseCreate():
                self._respond(said.response or protocol.ResponseConfig())
            case protocol.ResponseCancel():
                self.session.cancel(said.response_id)
            case protocol.Dtmf():
                if self._wants("rejoinder.dtmf"):
                    self._send(event("rejoinder.dtmf", digit=said.digit))

    async def _append(self, audio: str) -> None:
        sent_as = self._config.audio.input.format
        try:
            samples = decode(base64.b64decode(audio, validate=True), protocol.ENCODINGS[sent_as.type])
        except binascii.Error as error:
            raise BadEvent(
                f"audio is not base64 ({error}): send {sent_as.type}, base64-encoded", param="audio"
            ) from None
        except BadAudio as error:
            raise BadEvent(str(error), param="audio") from None
        rate = sent_as.rate
        size = _SLICE_MS * rate // 1000
        await self.session.room()
        for start in range(0, len(samples), size):
            self.session.append(samples[start : start + size], rate)
            await asyncio.sleep(0)

    def _update(self, patch: dict[str, Any]) -> None:
        merged = _merge(self._config.model_dump(), patch)
        try:
            config = SessionConfig.model_validate(merged)
        except ValidationError as error:
            fault = _first_fault(error)
            raise BadEvent(
                str(fault), code=fault.code, param=f"session.{fault.param}" if fault.param else "session"
            ) from None
        config.model, config.audio.output.voice = self._model, self._voice
        config.audio.input.noise_reduction = None
        if config.audio.input.transcription is not None:
            config.audio.input.transcription = protocol.Transcription()
        self._config = config
        self.session.configure(self._settings(config))
        self._send(event("session.updated", session=self._session_object()))

    def _create_item(self, said: protocol.ItemCreate) -> None:
        text = "".join(part.text for part in said.item.content)
        held = self.session.history.items
        if len(held) >= MAX_ITEMS or sum(len(item.text) for item in held) + len(text) > MAX_LETTERS:
            raise BadEvent(
                f"the conversation holds {len(held)} items, and {MAX_ITEMS} with {MAX_LETTERS} letters are the most: "
                "delete some first",
                code="conversation_too_long",
                param="item",
            )
        item_id = said.item.id or new_id("item")
        item = Item(item_id, said.item.role, text, spoken=False, complete=True)
        try:
            previous = self.session.history.add(item, said.previous_item_id)
        except UnknownItem as error:
            raise BadEvent(str(error.args[0]), code="item_not_found", param="previous_item_id") from None
        except ValueError as error:
            raise BadEvent(str(error), code="item_id_taken", param="item.id") from None
        for kind in ("conversation.item.added", "conversation.item.done"):
            self._send(event(kind, item=item_object(item), previous_item_id=previous))

    def _truncate(self, said: protocol.ItemTruncate) -> None:
        try:
            self.session.truncate(said.item_id, said.audio_end_ms)
        except ValueError as error:
            raise BadEvent(str(error), param="audio_end_ms") from None
        self._send(
            event(
                "conversation.item.truncated",
                item_id=said.item_id,
                content_index=0,
                audio_end_ms=said.audio_end_ms,
            )
        )

    def _respond(self, wanted: protocol.ResponseConfig) -> None:
        given = wanted.model_dump(exclude_none=True, include={"instructions", "output_modalities", "max_output_tokens"})
        config = self._config.model_copy(update=given)
        self._wanted = (config, wanted.metadata)
        try:
            self.session.respond(self._settings(config))
        finally:
            self._wanted = None

    def _settings(self, config: SessionConfig) -> Settings:
        detection = config.audio.input.turn_detection
        rules = TurnRules()
        if isinstance(detection, protocol.ServerVAD):
            timing = Timing(end_silence_ms=detection.silence_duration_ms, prefix_ms=detection.prefix_padding_ms)
            create, interrupt = detection.create_response, detection.interrupt_response
            rules = TurnRules(timing, detection.threshold, create, interrupt, by_silence=True)
        elif isinstance(detection, protocol.SemanticVAD):
            create, interrupt = detection.create_response, detection.interrupt_response
            rules = TurnRules(_EAGERNESS[detection.eagerness], 0.5, create, interrupt)
        return Settings(
            instructions=config.instructions,
            rules=rules,
            detect_turns=detection is not None,
            speak=config.output_modalities == ["audio"],
            speed=config.audio.output.speed,
            max_tokens=None if config.max_output_tokens == "inf" else config.max_output_tokens,
        )

    def _session_object(self) -> dict[str, Any]:
        return {"id": self._id, "object": "realtime.session", **self._config.model_dump()}

    def _refuse(self, error: BadEvent, event_id: str | None) -> None:
        detail = ErrorDetail(code=error.code, message=str(error), param=error.param, event_id=event_id)
        self._send(protocol.error(detail))

    def _wants(self, extension: str) -> bool:
        return extension in (self._config.include or ())

    def _on_session_event(self, happened: events.SessionEvent) -> None:
        send, transcribed = self._send, self._config.audio.input.transcription is not None
        match happened:
            case events.SpeechStarted():
                send(
                    event(
                        "input_audio_buffer.speech_started",
                        item_id=happened.item_id,
                        audio_start_ms=happened.audio_start_ms,
                    )
                )
            case events.SpeechStopped():
                send(
                    event(
                        "input_audio_buffer.speech_stopped",
                        item_id=happened.item_id,
                        audio_end_ms=happened.audio_end_ms,
                    )
                )
            case events.InputCommitted():
                placed = {"previous_item_id": happened.previous_id}
                item = item_object(happened.item)
                send(event("input_audio_buffer.committed", item_id=happened.item.id, **placed))
                send(event("conversation.item.added", item=item, **placed))
                send(event("conversation.item.done", item={**item, "status": "completed"}, **placed))
            case events.FinalTranscript() if transcribed:
                self._send_transcript(happened)
            case events.TranscriptionFailed() if transcribed:
                said = {"type": "server_error", "code": "transcription_failed", "message": happened.reason}
                kind = "conversation.item.input_audio_transcription.failed"
                send(event(kind, item_id=happened.item_id, content_index=0, error=said))
            case events.PartialTranscript() if transcribed and self._wants("rejoinder.transcript"):
                said = {"item_id": happened.item_id, "stable": happened.stable, "unstable": happened.unstable}
                send(event("rejoinder.transcript", **said))
            case events.PhaseChanged() if self._wants("rejoinder.phase"):
                send(event("rejoinder.phase", phase=happened.phase))
            case events.AnswerStarted():
                config, metadata = self._wanted or (self._config, None)
                self._responses.start(happened, config, metadata)
            case events.AnswerText():
                self._responses.text(happened)
            case events.AnswerAudio():
                self._responses.audio(happened)
            case events.AnswerDone():
                self._responses.done(happened, timeline=self._wants("rejoinder.turn"))
                if self._keep is not None:
                    asked = said_before(self.session.history.items, happened.item)
                    turn = turn_event(happened).model_dump()
                    self._keep(TurnRecord.of(turn, happened.status, asked, happened.item.heard))
            case events.Drafted() if self._wants("rejoinder.draft"):
                said = {"response_id": happened.response_id, "committed": happened.committed, "draft": happened.draft}
                send(event("rejoinder.draft", step=happened.step, **said))

    def _send_transcript(self, said: events.FinalTranscript) -> None:
        kind = "conversation.item.input_audio_transcription"
        where = {"item_id": said.item_id, "content_index": 0}
        if said.text:
            self._send(event(f"{kind}.delta", delta=said.text, **where))
        usage = {"type": "duration", "seconds": said.seconds}
        self._send(event(f"{kind}.completed", transcript=said.text, usage=usage, **where))


def _parse(text: str) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadEvent(f"this event is not JSON ({error}): send one JSON object a frame", code="invalid_json") from None
    if not isinstance(said, dict):
        raise BadEvent("an event must be a JSON object with a type", code="invalid_json")
    return said


def _merge(current: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """`patch` laid over `current`, objects field by field; an object of another `type` replaces the old one whole."""
    merged = deepcopy(current)
    for key, value in patch.items():
        old = merged.get(key)
        merged[key] = value
        if isinstance(old, dict) and isinstance(value, dict) and value.get("type", old.get("type")) == old.get("type"):
            merged[key] = _merge(old, value)
    return merged


def _first_fault(error: ValidationError) -> BadEvent:
    """The first thing that pydantic found, in the protocol's terms."""
    fault = error.errors(include_url=False)[0]
    # Pydantic puts the tag of a union into the path; it is no field of the event.
    tags = {
        "server_vad",
        "semantic_vad",
        "input_text",
        "output_text",
        *protocol.ENCODINGS,
        "int",
        "str",
        "constrained-int",
        "literal['inf']",
    }
    path = [str(part) for part in fault["loc"] if str(part) not in tags and not str(part).startswith("function-")]
    if path and "." in path[0]:
        path = path[1:]  # the event's type
    where = ".".join(path) or None
    kind = fault["type"]
    if kind == "union_tag_invalid" and where is None:
        return BadEvent(f"unknown event type: {fault['msg']}", code="unknown_event", param="type")
    if kind == "union_tag_not_found" and where is None:
        return BadEvent("an event must have a type", code="missing_required_parameter", param="type")
    code = {"extra_forbidden": "unknown_parameter", "missing": "missing_required_parameter"}.get(kind, "invalid_value")
    given = "" if kind in ("missing", "extra_forbidden") else f" (given: {str(fault['input'])[:80]!r})"
    return BadEvent(f"{where or 'the event'}: {fault['msg']}{given}", code=code, param=where)
