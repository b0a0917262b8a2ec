"""One Realtime conversation: turns client events into calls of a voice session, and session events into server events.

Sans I/O: text frames or client events go in through `receive` and `handle`, and server events come out through `send`.
`websocket.py` owns the socket.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from pydantic import ValidationError

from server.context import ServerContext
from server.observability.turn_log import TurnRecord, last_user_text
from server.realtime import events as protocol
from server.realtime.events import ErrorDetail, ServerEvent, SessionConfig, server_event
from server.realtime.response_writer import ResponseWriter, item_object, turn_event
from voice import events as session_events
from voice.audio.codec import BadAudio, decode
from voice.history import Item, UnknownItem
from voice.language_model import LanguageModel
from voice.playback import SessionSettings, new_id
from voice.session import RequestError, Session
from voice.speech_models import SpeechModels
from voice.timing import Timing
from voice.turn_machine import TurnRules

_log = logging.getLogger("rejoinder.server")

MAX_EVENT_BYTES = 1 << 20
"""Limit of a client event: 16 s of 24 kHz audio. Larger ones would block the other conversations."""

MAX_ITEMS, MAX_CHARACTERS = 2000, 1_000_000
"""Limits of a conversation: several days of talk."""

_MAX_SLICE_MS = 200
"""Audio processed at once before other conversations run."""

_EAGERNESS = {
    "low": Timing(shortest_wait_ms=500, longest_wait_ms=1200, patient_wait_ms=2000),
    "medium": Timing(),
    "auto": Timing(),
    "high": Timing(shortest_wait_ms=160, longest_wait_ms=450, patient_wait_ms=800),
}
"""How long the end of a turn is awaited at each eagerness of `semantic_vad`."""


class InvalidEvent(Exception):
    """A client event that is invalid or cannot be carried out."""

    def __init__(self, message: str, *, code: str = "invalid_value", param: str | None = None) -> None:
        super().__init__(message)
        self.code, self.param = code, param


class RealtimeConversation:
    """One connection's conversation.

    Args:
        language_model: this conversation's language model.
        speech_models: the shared speech models.
        model: the language model's name, as reported in the session object.
        send: called on the event loop with every event for the client.
        record_turn: called with every completed turn.
    """

    def __init__(
        self,
        language_model: LanguageModel,
        speech_models: SpeechModels,
        model: str,
        send: Callable[[ServerEvent], None],
        record_turn: Callable[[TurnRecord], None] | None = None,
    ) -> None:
        self._send, self._model, self._record_turn = send, model, record_turn
        self._voice = speech_models.voice.name
        self._id = new_id("sess")
        self._config = SessionConfig(model=model)
        self._config.audio.output.voice = self._voice
        self._response_request: tuple[SessionConfig, dict[str, str] | None] | None = None
        self._responses = ResponseWriter(send, new_id("conv"))
        self.session = Session(language_model, speech_models, self._on_session_event, self._settings(self._config))
        send(server_event("session.created", session=self._session_object()))

    async def receive(self, text: str) -> None:
        """Handle one text frame. An invalid one produces an `error` event; the conversation continues."""
        event_id: str | None = None
        try:
            if len(text) > MAX_EVENT_BYTES:
                raise InvalidEvent(
                    f"this event has {len(text)} bytes; the limit is {MAX_EVENT_BYTES}: send audio in smaller chunks",
                    code="event_too_large",
                )
            payload = _parse_json(text)
            event_id = payload.get("event_id") if isinstance(payload.get("event_id"), str) else None
            client_event = protocol.CLIENT_EVENT.validate_python(payload)
        except ValidationError as error:
            self._send_error(_first_validation_error(error), event_id)
        except InvalidEvent as error:
            self._send_error(error, event_id)
        else:
            await self.handle(client_event)

    async def handle(self, client_event: protocol.ClientEvent) -> None:
        """Handle one client event. An invalid one produces an `error` event; the conversation continues."""
        event_id = client_event.event_id
        try:
            await self._dispatch(client_event)
        except InvalidEvent as error:
            self._send_error(error, event_id)
        except RequestError as error:
            self._send_error(InvalidEvent(str(error), code=error.code), event_id)
        except UnknownItem as error:
            self._send_error(InvalidEvent(str(error.args[0]), code="item_not_found", param="item_id"), event_id)
        except Exception as error:
            _log.exception("handling a client event failed; the conversation continues")
            detail = ErrorDetail(
                type="server_error", code="internal_error", message=f"the server failed: {error}", event_id=event_id
            )
            self._send(protocol.error_event(detail))

    async def close(self) -> None:
        """End the conversation: the client has disconnected."""
        await self.session.close()

    async def _dispatch(self, client_event: protocol.ClientEvent) -> None:
        match client_event:
            case protocol.SessionUpdate():
                self._update(client_event.session)
            case protocol.InputAudioBufferAppend():
                await self._append(client_event.audio)
            case protocol.InputAudioBufferCommit():
                self.session.commit()
            case protocol.InputAudioBufferClear():
                self.session.clear()
                self._send(server_event("input_audio_buffer.cleared"))
            case protocol.ConversationItemCreate():
                self._create_item(client_event)
            case protocol.ConversationItemDelete():
                self.session.history.delete(client_event.item_id)
                self._send(server_event("conversation.item.deleted", item_id=client_event.item_id))
            case protocol.ConversationItemRetrieve():
                item = self.session.history.get(client_event.item_id)
                self._send(server_event("conversation.item.retrieved", item=item_object(item)))
            case protocol.ConversationItemTruncate():
                self._truncate(client_event)
            case protocol.ResponseCreate():
                self._respond(client_event.response or protocol.ResponseCreateParams())
            case protocol.ResponseCancel():
                self.session.cancel(client_event.response_id)
            case protocol.Dtmf():
                if self._includes("rejoinder.dtmf"):
                    self._send(server_event("rejoinder.dtmf", digit=client_event.digit))

    async def _append(self, audio: str) -> None:
        audio_format = self._config.audio.input.format
        try:
            samples = decode(base64.b64decode(audio, validate=True), protocol.ENCODINGS[audio_format.type])
        except BadAudio as error:
            raise InvalidEvent(str(error), param="audio") from None
        except ValueError as error:  # binascii.Error, or plain ValueError if the text is not ASCII
            raise InvalidEvent(
                f"audio is not base64 ({error}): send {audio_format.type}, base64-encoded", param="audio"
            ) from None
        rate = audio_format.rate
        size = _MAX_SLICE_MS * rate // 1000
        await self.session.wait_for_capacity()
        for start in range(0, len(samples), size):
            self.session.append(samples[start : start + size], rate)
            await asyncio.sleep(0)

    def _update(self, patch: dict[str, Any]) -> None:
        merged = _merge(self._config.model_dump(), patch)
        try:
            config = SessionConfig.model_validate(merged)
        except ValidationError as error:
            invalid = _first_validation_error(error)
            raise InvalidEvent(
                str(invalid), code=invalid.code, param=f"session.{invalid.param}" if invalid.param else "session"
            ) from None
        config.model, config.audio.output.voice = self._model, self._voice
        config.audio.input.noise_reduction = None
        if config.audio.input.transcription is not None:
            config.audio.input.transcription = protocol.AudioTranscription()
        self._config = config
        self.session.configure(self._settings(config))
        self._send(server_event("session.updated", session=self._session_object()))

    def _create_item(self, client_event: protocol.ConversationItemCreate) -> None:
        text = "".join(part.text for part in client_event.item.content)
        items = self.session.history.items
        if len(items) >= MAX_ITEMS or sum(len(item.text) for item in items) + len(text) > MAX_CHARACTERS:
            raise InvalidEvent(
                f"the conversation has {len(items)} items; the limits are {MAX_ITEMS} items and {MAX_CHARACTERS} "
                "characters: delete some items first",
                code="conversation_too_long",
                param="item",
            )
        item_id = client_event.item.id or new_id("item")
        item = Item(item_id, client_event.item.role, text, spoken=False, complete=True)
        try:
            previous = self.session.history.add(item, client_event.previous_item_id)
        except UnknownItem as error:
            raise InvalidEvent(str(error.args[0]), code="item_not_found", param="previous_item_id") from None
        except ValueError as error:
            raise InvalidEvent(str(error), code="item_id_taken", param="item.id") from None
        for event_type in ("conversation.item.added", "conversation.item.done"):
            self._send(server_event(event_type, item=item_object(item), previous_item_id=previous))

    def _truncate(self, client_event: protocol.ConversationItemTruncate) -> None:
        try:
            self.session.truncate(client_event.item_id, client_event.audio_end_ms)
        except ValueError as error:
            raise InvalidEvent(str(error), param="audio_end_ms") from None
        self._send(
            server_event(
                "conversation.item.truncated",
                item_id=client_event.item_id,
                content_index=0,
                audio_end_ms=client_event.audio_end_ms,
            )
        )

    def _respond(self, params: protocol.ResponseCreateParams) -> None:
        overrides = params.model_dump(
            exclude_none=True, include={"instructions", "output_modalities", "max_output_tokens"}
        )
        config = self._config.model_copy(update=overrides)
        self._response_request = (config, params.metadata)
        try:
            self.session.respond(self._settings(config))
        finally:
            self._response_request = None

    def _settings(self, config: SessionConfig) -> SessionSettings:
        detection = config.audio.input.turn_detection
        rules = TurnRules()
        if isinstance(detection, protocol.ServerVAD):
            timing = Timing(end_silence_ms=detection.silence_duration_ms, prefix_ms=detection.prefix_padding_ms)
            create, interrupt = detection.create_response, detection.interrupt_response
            rules = TurnRules(timing, detection.threshold, create, interrupt, silence_only=True)
        elif isinstance(detection, protocol.SemanticVAD):
            create, interrupt = detection.create_response, detection.interrupt_response
            rules = TurnRules(_EAGERNESS[detection.eagerness], 0.5, create, interrupt)
        return SessionSettings(
            instructions=config.instructions,
            rules=rules,
            detect_turns=detection is not None,
            speak=config.output_modalities == ["audio"],
            speed=config.audio.output.speed,
            max_tokens=None if config.max_output_tokens == "inf" else config.max_output_tokens,
        )

    def _session_object(self) -> dict[str, Any]:
        return {"id": self._id, "object": "realtime.session", **self._config.model_dump()}

    def _send_error(self, error: InvalidEvent, event_id: str | None) -> None:
        detail = ErrorDetail(code=error.code, message=str(error), param=error.param, event_id=event_id)
        self._send(protocol.error_event(detail))

    def _includes(self, extension: str) -> bool:
        return extension in (self._config.include or ())

    def _on_session_event(self, session_event: session_events.SessionEvent) -> None:
        send, transcribed = self._send, self._config.audio.input.transcription is not None
        match session_event:
            case session_events.SpeechStarted():
                send(
                    server_event(
                        "input_audio_buffer.speech_started",
                        item_id=session_event.item_id,
                        audio_start_ms=session_event.audio_start_ms,
                    )
                )
            case session_events.SpeechStopped():
                send(
                    server_event(
                        "input_audio_buffer.speech_stopped",
                        item_id=session_event.item_id,
                        audio_end_ms=session_event.audio_end_ms,
                    )
                )
            case session_events.InputCommitted():
                position = {"previous_item_id": session_event.previous_id}
                item = item_object(session_event.item)
                send(server_event("input_audio_buffer.committed", item_id=session_event.item.id, **position))
                send(server_event("conversation.item.added", item=item, **position))
                send(server_event("conversation.item.done", item={**item, "status": "completed"}, **position))
            case session_events.FinalTranscript() if transcribed:
                self._send_transcript(session_event)
            case session_events.TranscriptionFailed() if transcribed:
                error = {"type": "server_error", "code": "transcription_failed", "message": session_event.reason}
                event_type = "conversation.item.input_audio_transcription.failed"
                send(server_event(event_type, item_id=session_event.item_id, content_index=0, error=error))
            case session_events.PartialTranscript() if transcribed and self._includes("rejoinder.transcript"):
                send(
                    server_event(
                        "rejoinder.transcript",
                        item_id=session_event.item_id,
                        stable=session_event.stable,
                        unstable=session_event.unstable,
                    )
                )
            case session_events.PhaseChanged() if self._includes("rejoinder.phase"):
                send(server_event("rejoinder.phase", phase=session_event.phase))
            case session_events.ResponseStarted():
                config, metadata = self._response_request or (self._config, None)
                self._responses.start(session_event, config, metadata)
            case session_events.ResponseText():
                self._responses.text_delta(session_event)
            case session_events.ResponseAudio():
                self._responses.audio_delta(session_event)
            case session_events.ResponseDone():
                self._responses.done(session_event, include_turn_event=self._includes("rejoinder.turn"))
                if self._record_turn is not None:
                    transcript = last_user_text(self.session.history.items, session_event.item)
                    turn = turn_event(session_event).model_dump()
                    response = session_event.item.heard_text
                    self._record_turn(TurnRecord.from_event(turn, session_event.status, transcript, response))
            case session_events.ResponseDraft() if self._includes("rejoinder.draft"):
                send(
                    server_event(
                        "rejoinder.draft",
                        step=session_event.step,
                        response_id=session_event.response_id,
                        committed=session_event.committed,
                        draft=session_event.draft,
                    )
                )

    def _send_transcript(self, transcript: session_events.FinalTranscript) -> None:
        prefix = "conversation.item.input_audio_transcription"
        fields = {"item_id": transcript.item_id, "content_index": 0}
        if transcript.text:
            self._send(server_event(f"{prefix}.delta", delta=transcript.text, **fields))
        usage = {"type": "duration", "seconds": transcript.seconds}
        self._send(server_event(f"{prefix}.completed", transcript=transcript.text, usage=usage, **fields))


def _parse_json(text: str) -> dict[str, Any]:
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidEvent(
            f"this event is not JSON ({error}): send one JSON object per frame", code="invalid_json"
        ) from None
    if not isinstance(payload, dict):
        raise InvalidEvent("an event must be a JSON object with a type", code="invalid_json")
    return payload


def _merge(current: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Merge `patch` into `current`, objects field by field. An object of another `type` replaces the old one."""
    merged = deepcopy(current)
    for key, value in patch.items():
        old = merged.get(key)
        merged[key] = value
        if isinstance(old, dict) and isinstance(value, dict) and value.get("type", old.get("type")) == old.get("type"):
            merged[key] = _merge(old, value)
    return merged


def _first_validation_error(error: ValidationError) -> InvalidEvent:
    """The first error that pydantic reports, in the protocol's terms."""
    details = error.errors(include_url=False)[0]
    # Pydantic puts the tags of unions into the path, but they are not fields of the event.
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
    path = [str(part) for part in details["loc"] if str(part) not in tags and not str(part).startswith("function-")]
    if path and "." in path[0]:
        path = path[1:]  # the tag of the event's own type
    param = ".".join(path) or None
    kind = details["type"]
    if kind == "union_tag_invalid" and param is None:
        return InvalidEvent(f"unknown event type: {details['msg']}", code="unknown_event", param="type")
    if kind == "union_tag_not_found" and param is None:
        return InvalidEvent("an event must have a type", code="missing_required_parameter", param="type")
    code = {"extra_forbidden": "unknown_parameter", "missing": "missing_required_parameter"}.get(kind, "invalid_value")
    value = "" if kind in ("missing", "extra_forbidden") else f" (received: {str(details['input'])[:80]!r})"
    return InvalidEvent(f"{param or 'the event'}: {details['msg']}{value}", code=code, param=param)


def open_conversation(context: ServerContext, send: Callable[[ServerEvent], None]) -> RealtimeConversation:
    """Start a conversation with the server's models. Its events go to `send`."""
    return RealtimeConversation(
        context.new_language_model(), context.speech_models, context.model, send, context.record_turn
    )
