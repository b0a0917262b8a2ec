"""One Realtime conversation: turns client events into calls of a voice session.

Sans I/O: text frames or client events go in through `receive` and `handle`, and server events come out through `send`;
`event_writer.py` makes them. `websocket.py` owns the socket.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from agent.tools.user_data import owner_id
from server.access.admission import Slot
from server.access.usage import Usage, key_name
from server.budgets import CONVERSATION, memory
from server.context import ServerContext
from server.realtime import events as protocol
from server.realtime.configuration import (
    after_output,
    check_generation,
    check_speech,
    config_bytes,
    default_config,
    response_patch,
    session_object,
    session_settings,
    updated_config,
)
from server.realtime.event_writer import EventWriter, ResponseTag
from server.realtime.events import ServerEvent, server_event
from server.realtime.items import (
    CreatedItem,
    ItemReference,
    McpApprovalResponseItem,
    history_item,
    item_object,
)
from server.realtime.mcp_tools import McpTools
from server.realtime.session_config import ENCODINGS, FunctionTool, McpServer, SessionConfig
from server.realtime.session_record import SessionRecord, items_as_heard
from server.realtime.validation import InvalidEvent, errors_in, parse_json
from voice.audio.codec import OUTPUT_RATE, BadAudio, Samples, decode
from voice.events import PhaseChanged, ResponseAudio, SessionEvent
from voice.history import (
    FunctionCall,
    FunctionCallOutput,
    History,
    HistoryItem,
    Item,
    NotSpoken,
    UnknownItem,
    item_bytes,
    new_id,
)
from voice.playback import SessionSettings
from voice.response_request import RequestError, ResponseRequest
from voice.session import VoiceSession

if TYPE_CHECKING:
    from agent.documents.evidence import DocumentEvidence
    from agent.documents.search import SharedDocuments

_log = logging.getLogger("rejoinder.server")

MAX_EVENT_BYTES = 1 << 20
"""Limit of a client event: 16 s of 24 kHz audio. Larger ones would block the other conversations."""

MIN_RECORDING_S, MAX_RECORDING_S = 0.1, 120.0
"""Limits of an audio item: those of a spoken turn."""

_COUNTED_AUDIO_S = 5.0
"""Audio is counted in portions of this length."""

_MAX_SLICE_MS = 200
"""Audio processed at once before other conversations run."""


class RealtimeConversation:
    """One connection's conversation.

    Args:
        context: the server's models, tools and limits.
        slot: counts what the conversation uses.
        send: called on the event loop with every event for the client.
        config: the configuration to start with; the defaults if None.
        resume_token: sent to clients that include `rejoinder.resume`, to come back after their connection dropped.
        restored: the record of a session that goes on here; `resumed` tells its client.

    Attributes:
        copied_bytes: size of all configurations that the client's events made by now, and of the items they retrieved.
    """

    def __init__(
        self,
        context: ServerContext,
        slot: Slot,
        send: Callable[[ServerEvent], None],
        config: SessionConfig | None = None,
        *,
        resume_token: str = "",
        restored: SessionRecord | None = None,
    ) -> None:
        self._send, self._model, self._language_model = send, context.model, context.new_language_model()
        self._speech_models, self.copied_bytes = context.speech_models, 0
        self._id, self._resume_token = restored.session_id if restored is not None else new_id("sess"), resume_token
        self._listening = asyncio.Event()
        self._listening.set()
        self._meter, self._audio_in_s, self._audio_out_s = slot.meter, 0.0, 0.0
        self._config = config or default_config(context.model, context.speech_models.voices.default.name)
        history = History(restored.items if restored is not None else (), CONVERSATION.bytes)
        allowed = context.tool_access.allowed(slot.channel, key_name(slot.key))
        self.tools = own = None if context.tools is None else context.tools.conversation(_owner(slot), allowed)
        self._mcp = McpTools(
            send, history, context.mcp_servers, self._apply_config, self._language_model.check_tools, own, allowed
        )
        self._writer = EventWriter(send, self._config, lambda: history.items, context, slot, self._mcp)
        self.session = VoiceSession(
            self._language_model,
            context.speech_models,
            self._on_session_event,
            session_settings(self._config),
            history=history,
            tools=own,
            documents=None if context.documents is None else self._evidence(context.documents),
            remote=context.remote_llm,
        )
        slot.phase = lambda: self.session.state.phase
        if own is not None:
            own.connect(self.session.announce, self._writer.write_alarms)
        if restored is None:
            send(server_event("session.created", session=self._session_object()))
            self._begin()

    def _begin(self) -> None:
        """Begin what the configuration asks for, once the client knows its session."""
        self._writer.begin_extensions()
        self._connect_mcp_servers(self._config)
        self._offer_resumption()

    def _evidence(self, documents: SharedDocuments) -> DocumentEvidence:
        """The documents, for clients that take their sources."""
        from agent.documents.evidence import DocumentEvidence  # takes memory that nobody needs without documents

        return DocumentEvidence(documents, lambda: self._writer.includes("rejoinder.sources"))

    async def receive(self, text: str) -> None:
        """Handle one text frame. An invalid one produces an `error` event; the conversation continues."""
        event_id: str | None = None
        try:
            if len(text) > MAX_EVENT_BYTES:
                raise InvalidEvent(
                    f"this event has {len(text)} bytes; the limit is {MAX_EVENT_BYTES}: send audio in smaller chunks",
                    code="event_too_large",
                )
            payload = parse_json(text)
            event_id = payload.get("event_id") if isinstance(payload.get("event_id"), str) else None
            client_event = protocol.CLIENT_EVENT.validate_python(payload)
        except ValidationError as error:
            self._send_error(InvalidEvent.from_validation(error), event_id)
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
            message = f"the server failed: {error}"
            self._send(protocol.error_event(message, "internal_error", event_id=event_id))

    async def close(self) -> None:
        """End the conversation: the client has disconnected."""
        await self._writer.close()
        await self._mcp.close()
        await self.session.close()
        self._count_audio()

    @property
    def resumable(self) -> bool:
        """Whether the client asked to be able to come back."""
        return self._writer.includes("rejoinder.resume")

    def record(self, key: str, caller: str = "") -> SessionRecord:
        """What another replica needs to continue the conversation as it has been heard by now.

        Args:
            key: name of the client's API key.
            caller: the number of a phone call.
        """
        items = items_as_heard(self.session.history.items, self.session.heard_ms())
        return SessionRecord(key, self._id, self._config, items, caller)

    def disconnected(self) -> None:
        """The connection dropped, and the client may come back: fall silent, and forget what it has not heard."""
        self.session.interrupt()
        if self.tools is not None:
            self.tools.disconnect()  # timers that are due wait until the client is back

    def resumed(self, resume_token: str) -> None:
        """The client has come back: send it the session and the conversation as it was heard."""
        self._resume_token = resume_token
        self._send(server_event("session.created", session=self._session_object()))
        self._send(server_event("rejoinder.resumed", items=self._mcp.item_objects(self.session.history.items)))
        if self.tools is not None:
            self.tools.connect(self.session.announce, self._writer.write_alarms)
        self._begin()
        self.session.resume()

    def announcement_sent(self, samples: Samples) -> None:
        """The client was sent audio outside of any response, [T] float32 at 24 kHz; empty if it stopped playing it."""
        self.session.announcement_sent(samples)

    async def wait_until_idle(self) -> None:
        """Wait until nobody speaks and no response is in progress or being played."""
        await self._listening.wait()

    def _on_session_event(self, event: SessionEvent) -> None:
        match event:
            case ResponseAudio():
                self._audio_out_s += len(event.samples) / OUTPUT_RATE
            case PhaseChanged(phase="listening"):
                self._listening.set()
            case PhaseChanged():
                self._listening.clear()
        self._writer.write(event)

    def _count_audio(self) -> None:
        self._meter.add(Usage(audio_in_s=self._audio_in_s, audio_out_s=self._audio_out_s))
        self._audio_in_s = self._audio_out_s = 0.0

    def _offer_resumption(self) -> None:
        if self.resumable and self._resume_token:
            self._send(server_event("rejoinder.resume", token=self._resume_token))

    async def _dispatch(self, client_event: protocol.ClientEvent) -> None:
        await self._mcp.own_listed()  # they are part of the configuration that earlier events made
        match client_event:
            case protocol.SessionUpdate():
                await self._update(client_event.session)
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
                item = self._find_item(client_event.item_id)
                self.copied_bytes += memory(item)
                self._send(server_event("conversation.item.retrieved", item=item))
            case protocol.ConversationItemTruncate():
                self._truncate(client_event)
            case protocol.ResponseCreate():
                await self._respond(client_event.response or protocol.ResponseCreateParams())
            case protocol.ResponseCancel():
                self.session.cancel(client_event.response_id)
            case protocol.Dtmf():
                if self._writer.includes("rejoinder.dtmf"):
                    self._send(server_event("rejoinder.dtmf", digit=client_event.digit))

    async def _append(self, audio: str) -> None:
        samples, rate = self._decode(audio, "audio")
        size = _MAX_SLICE_MS * rate // 1000
        self._audio_in_s += len(samples) / rate
        if self._audio_in_s > _COUNTED_AUDIO_S:
            self._count_audio()
        await self.session.wait_for_capacity()
        for start in range(0, len(samples), size):
            self.session.append(samples[start : start + size], rate)
            await asyncio.sleep(0)

    def _decode(self, audio: str, param: str) -> tuple[Samples, int]:
        """The samples of base64 audio in the session's input format, and their rate in Hz."""
        audio_format = self._config.audio.input.format
        try:
            return decode(base64.b64decode(audio, validate=True), ENCODINGS[audio_format.type]), audio_format.rate
        except BadAudio as error:
            raise InvalidEvent(str(error), param=param) from None
        except ValueError as error:  # binascii.Error, or plain ValueError if the text is not ASCII
            raise InvalidEvent(
                f"audio is not base64 ({error}): send {audio_format.type}, base64-encoded", param=param
            ) from None

    async def _changed(self, field: str, patch: dict[str, Any], *, in_conversation: bool = True) -> SessionConfig:
        """The configuration with a change, which is in a field of an event, if the conversation can have it.

        Args:
            in_conversation: whether what is said with it belongs to the conversation, which has one voice.
        """
        with errors_in(field):
            config = updated_config(self._config, patch)
            self.copied_bytes += config_bytes(config)
            check_speech(config, self._speech_models)
            if in_conversation:
                self._check_voice_change(config)
            await check_generation(config, self._config, self._language_model, self._mcp.refusal)
        return config

    async def _update(self, patch: dict[str, Any]) -> None:
        config = await self._changed("session", patch)
        config.model = self._model
        was_resumable = self.resumable
        self._config = self._writer.config = config
        self._connect_mcp_servers(config)
        self._apply_config()
        self._send(server_event("session.updated", session=self._session_object()))
        self._writer.begin_extensions()
        if not was_resumable:
            self._offer_resumption()

    def _check_voice_change(self, config: SessionConfig) -> None:
        """Check that the assistant does not change its voice after it has spoken."""
        current, new = (self._speech_models.voices.find(one.audio.output.voice_name) for one in (self._config, config))
        if new is not current and self.session.history.assistant_has_spoken:
            raise InvalidEvent(
                f"the assistant has spoken as {current.name} and cannot become {new.name}: choose the voice before its "
                "first audio, or open a new session",
                code="cannot_update_voice",
                param="audio.output.voice",
            )

    def _apply_config(self) -> None:
        self.session.configure(session_settings(self._config, self._mcp.tools()))

    def _connect_mcp_servers(self, config: SessionConfig) -> None:
        servers = [tool for tool in config.tools if isinstance(tool, McpServer) and self._mcp.refusal(tool) is None]
        self._mcp.configure(servers, [tool.name for tool in config.tools if isinstance(tool, FunctionTool)])

    def _create_item(self, client_event: protocol.ConversationItemCreate) -> None:
        if isinstance(client_event.item, McpApprovalResponseItem):
            self._approve(client_event.item)
            return
        item, recording = self._read_item(client_event.item, "item")
        items = self.session.history.items
        if self.session.history.size + item_bytes(item) > CONVERSATION.bytes:
            raise InvalidEvent(
                f"the conversation has {len(items)} items; with this one they would take more than "
                f"{CONVERSATION.bytes >> 10} KiB of memory: delete some items first",
                code="conversation_too_long",
                param="item",
            )
        if isinstance(item, FunctionCallOutput) and not any(
            isinstance(call, FunctionCall) and call.call_id == item.call_id for call in items
        ):
            message = f"the conversation has no function call {item.call_id!r} that this could be the output of"
            raise InvalidEvent(message, code="item_not_found", param="item.call_id")
        try:
            previous = self.session.history.add(item, client_event.previous_item_id)
        except UnknownItem as error:
            raise InvalidEvent(str(error.args[0]), code="item_not_found", param="previous_item_id") from None
        except ValueError as error:
            raise InvalidEvent(str(error), code="item_id_taken", param="item.id") from None
        self._writer.item_added(item, previous)
        self._transcribe(item, recording)

    def _approve(self, response: McpApprovalResponseItem) -> None:
        item = self._mcp.approve(response)
        if item is None:
            message = f"no approval request {response.approval_request_id!r} waits for an answer"
            raise InvalidEvent(message, code="item_not_found", param="item.approval_request_id")
        for event_type in ("conversation.item.added", "conversation.item.done"):
            self._send(server_event(event_type, item=item, previous_item_id=response.approval_request_id))

    def _read_item(self, created: CreatedItem, param: str) -> tuple[HistoryItem, tuple[Samples, int] | None]:
        """The item that a client creates, and its audio if it must be transcribed."""
        with errors_in(param):
            item, audio = history_item(created)
        if audio is None:
            return item, None
        samples, rate = self._decode(audio, f"{param}.content")
        if not MIN_RECORDING_S <= len(samples) / rate <= MAX_RECORDING_S:
            raise InvalidEvent(
                f"the recording has {len(samples) / rate:.1f} s; {MIN_RECORDING_S} to {MAX_RECORDING_S} s are possible",
                param=f"{param}.content",
            )
        self.session.check_capacity()
        return item, (samples, rate)

    def _find_item(self, item_id: str) -> dict[str, Any]:
        try:
            return self._mcp.other_item(item_id) or item_object(self.session.history.get(item_id))
        except UnknownItem as error:
            code = "item_retrieve_invalid_item_id"  # the one code of its kind that clients look for
            raise InvalidEvent(str(error.args[0]), code=code, param="item_id") from None

    def _transcribe(self, item: HistoryItem, recording: tuple[Samples, int] | None) -> None:
        if recording is not None:
            assert isinstance(item, Item)
            self.session.add_recording(item, *recording)

    def _read_input(self, created: Sequence[CreatedItem | ItemReference]) -> tuple[HistoryItem, ...]:
        """The items that a response is to respond to."""
        items: list[HistoryItem] = []
        for number, one in enumerate(created):
            if isinstance(one, ItemReference):
                try:
                    items.append(self.session.history.get(one.id))
                except UnknownItem as error:
                    param = f"response.input.{number}.id"
                    raise InvalidEvent(str(error.args[0]), code="item_not_found", param=param) from None
                continue
            item, recording = self._read_item(one, f"response.input.{number}")
            self._transcribe(item, recording)
            items.append(item)
        return tuple(items)

    def _truncate(self, client_event: protocol.ConversationItemTruncate) -> None:
        try:
            self.session.truncate(client_event.item_id, client_event.audio_end_ms)
        except NotSpoken as error:
            raise InvalidEvent(str(error), param="item_id") from None
        except ValueError as error:
            raise InvalidEvent(str(error), param="audio_end_ms") from None
        heard = client_event.model_dump(include={"item_id", "content_index", "audio_end_ms"})
        self._send(server_event("conversation.item.truncated", **heard))

    async def _respond(self, params: protocol.ResponseCreateParams) -> None:
        if self._config.type == "transcription":
            raise InvalidEvent("a transcription session has no responses", param="type")
        in_conversation = params.conversation == "auto"
        config = await self._changed("response", response_patch(params), in_conversation=in_conversation)
        items = None if params.input is None else self._read_input(params.input)
        context = self.session.history.items if items is None else items
        if params.tool_choice is None and context and isinstance(context[-1], FunctionCallOutput):
            config = after_output(config)
        tag = ResponseTag(config, params.metadata)
        settings = session_settings(config, self._mcp.tools(own=in_conversation))
        final_settings = partial(self._settings_with_tools, config, own=in_conversation)
        self.session.respond(ResponseRequest(settings, items, in_conversation, tag, final_settings=final_settings))

    async def _settings_with_tools(self, config: SessionConfig, *, own: bool) -> SessionSettings:
        """The settings of a response, once it need not wait for the tools of servers any more."""
        await self._mcp.listed()
        return session_settings(config, self._mcp.tools(own=own))

    def _session_object(self) -> dict[str, Any]:
        return {"id": self._id, "object": "realtime.session", **session_object(self._config)}

    def _send_error(self, error: InvalidEvent, event_id: str | None) -> None:
        event = protocol.error_event(
            str(error), error.code, type="invalid_request_error", param=error.param, event_id=event_id
        )
        self._send(event)


def _owner(slot: Slot) -> str:
    """Whose timers and notes these are, if the client does not say: those of a phone number, or of an API key. A key
    speaks for the callers that it brings, and not for those of a carrier or of another key. A call without a number,
    which may be anybody's, has its own."""
    if slot.caller:
        return owner_id("phone", slot.caller) + (f"@{slot.key.name}" if slot.key is not None else "")
    return owner_id("key", slot.key.name) if slot.key is not None and slot.channel != "phone" else ""
