"""One phone call: connects a carrier's stream to a Realtime conversation. Sans I/O.

Carrier events go in through `on_carrier_event`, server events through `on_server_event`, the time through `tick`. The
results wait in `frames` and `client_events`. `connection.py` owns the socket, the clock and the conversation.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from agent.capture.keys import keys_message
from server.mcp_access import OWN_URL
from server.realtime.conversation import MAX_EVENT_BYTES
from server.realtime.events import (
    ClientEvent,
    ConversationItemCreate,
    ConversationItemTruncate,
    Dtmf,
    InputAudioBufferAppend,
    ResponseCancel,
    ResponseCreate,
    ServerEvent,
    SessionUpdate,
)
from server.realtime.items import MessageItem, Text
from server.telephony.dialect import (
    FRAME_MS,
    BufferState,
    CallEnded,
    CallerAudio,
    CallStarted,
    CarrierEvent,
    Dialect,
    DtmfDigit,
    Frame,
    MarkPlayed,
    to_base64,
)
from server.telephony.jitter_buffer import JitterBuffer
from server.telephony.playout import Playout, Truncation
from server.telephony.settings import CallSettings
from voice.audio.codec import Encoding
from voice.history import Span

_log = logging.getLogger("rejoinder.phone")

_FORMATS = {"pcmu": "audio/pcmu", "pcma": "audio/pcma", "pcm": "audio/pcm"}
_SILENCE: dict[Encoding, int] = {"pcmu": 0xFF, "pcma": 0xD5, "pcm": 0x00}
"""A byte of silence in each encoding."""

_MAX_AUDIO_GAP_S = 0.5
"""After this long without audio from the carrier, the call is fed silence so that a turn can end: some carriers send
nothing while nobody speaks. Shorter gaps are late frames."""

_DIGIT_PAUSE_S = 1.5
"""A pause that ends a sequence of keys; people type a number with shorter ones."""

_MAX_DIGITS = 64

_MAX_FAREWELL_S = 20.0
"""The longest that a call waits for its farewell to be played."""


@dataclass(frozen=True)
class CalledFunction:
    """A function that has returned: its arguments as JSON text, and its output."""

    name: str
    arguments: str
    output: str

    def for_log(self) -> str:
        """The call without what people have said: the names and lengths of its arguments, and its output's length."""
        try:
            given = {name: len(str(value)) for name, value in json.loads(self.arguments).items()}
        except (ValueError, AttributeError):  # the arguments are no JSON, or no object
            given = {"?": len(self.arguments)}
        lengths = ", ".join(f"{name}: {length} characters" for name, length in given.items())
        return f"{self.name}({lengths}), which returned {len(self.output)} characters"


@dataclass(frozen=True)
class Announcement:
    """A text to speak verbatim.

    Attributes:
        generation: how often the call's speech had been interrupted when it was to be spoken.
    """

    text: str
    generation: int


class Call:
    """One call that has started.

    Args:
        dialect: the carrier's.
        started: the event that started the call.
        settings: of this call.
        now: seconds, on the clock that all later times use.

    Attributes:
        frames: frames for the carrier, to be taken and emptied.
        client_events: client events for the conversation, to be taken and emptied.
        announcements: texts to speak verbatim, to be taken and emptied: pass their audio to `add_announcement`.
        announcement_audio: announcements as sent to the caller, encoded for the carrier, so that the conversation can
            recognize their echo. An empty entry means that the announcement was interrupted.
        called_functions: functions that have returned, to be taken and emptied.
        end_reason: why the call ended, once it did.
    """

    def __init__(self, dialect: Dialect, started: CallStarted, settings: CallSettings, now: float) -> None:
        self.frames: list[Frame] = []
        self.client_events: list[ClientEvent] = []
        self.announcements: list[Announcement] = []
        self.announcement_audio: list[bytes] = []
        self.called_functions: list[CalledFunction] = []
        self.end_reason: str | None = None
        self._dialect, self._settings = dialect, settings
        silence = _SILENCE[dialect.encoding]
        self._bytes_per_ms = dialect.rate * (2 if dialect.encoding == "pcm" else 1) // 1000
        self._playout = Playout(
            self._bytes_per_ms,
            silence,
            chunk_ms=dialect.chunk_ms,
            send_ahead_ms=dialect.send_ahead_ms,
            returns_marks=dialect.returns_marks,
        )
        self._jitter_buffer = JitterBuffer(silence)
        self._silent_frame = bytes([silence]) * (FRAME_MS * self._bytes_per_ms)
        self._announced: dict[str, Span] = {}
        self._running_functions: dict[str, tuple[str, str]] = {}
        self._pending_texts = self._announcement_count = self._generation = 0
        self._response_id: str | None = None
        self._dropped_response_id: str | None = None
        self._may_resume = False  # the caller speaks over a response, and may only cough
        self._phase = "listening"
        self._digits, self._digits_deadline = "", 0.0
        self._started_at = self._last_audio_at = self._last_active_at = now
        self._prompts_spoken = 0
        self._hanging_up: tuple[str, float] | None = None
        self._begin()

    def _begin(self) -> None:
        audio_format: dict[str, Any] = {"type": _FORMATS[self._dialect.encoding]}
        if self._dialect.encoding == "pcm":
            audio_format["rate"] = self._dialect.rate
        turn_detection = {"type": "semantic_vad", "eagerness": self._settings.eagerness}
        audio = {
            "input": {"format": audio_format, "turn_detection": turn_detection},
            "output": {"format": audio_format, "voice": self._settings.voice, "speed": self._settings.speed},
        }
        session = {
            "type": "realtime",
            "audio": audio,
            "instructions": self._settings.instructions,
            "include": ["rejoinder.phase", "rejoinder.sources"],
            "tools": [{"type": "mcp", "server_label": "rejoinder", "server_url": OWN_URL}],
        }
        self.client_events.append(SessionUpdate(type="session.update", session=session))
        self._send(self._dialect.answer())
        self._announce(self._settings.greeting)

    @property
    def announcement_format(self) -> tuple[str, float, Encoding, int]:
        """How `announcements` are to be spoken: voice, speed, encoding, and Hz."""
        return self._settings.voice, self._settings.speed, self._dialect.encoding, self._dialect.rate

    @property
    def reports_functions(self) -> bool:
        """Whether the other side wants to know which functions are called, and its protocol has text frames."""
        return self._settings.report_functions and self._dialect.has_text_frames

    # From the carrier.

    def on_carrier_event(self, event: CarrierEvent, now: float) -> None:
        """Handle an event of the carrier."""
        match event:
            case CallerAudio():
                self._last_audio_at = now
                self._append(self._jitter_buffer.push(event.data, event.chunk))
            case DtmfDigit():
                self._on_digit(event.digit, now)
            case MarkPlayed():
                self._playout.mark_played(event.mark)
            case BufferState():
                self._playout.pause(event.full)
            case CallEnded():
                self.end_reason = self.end_reason or event.reason
            case CallStarted():
                pass  # handled by __init__

    def tick(self, now: float) -> None:
        """Send what is due. Call this every 20 ms, and as soon as there is new audio."""
        for chunk in self._playout.due(now):
            self._send(self._dialect.audio(chunk.data))
            if chunk.mark is not None:
                self._send(self._dialect.mark(chunk.mark))
        for item_id in [item_id for item_id in self._announced if self._playout.finished(item_id, now)]:
            self._remember_announcement(item_id, self._announced[item_id].end_ms)
        if self._digits and now >= self._digits_deadline:
            self._submit_digits(now)
        while now - self._last_audio_at >= _MAX_AUDIO_GAP_S:
            self._last_audio_at += FRAME_MS / 1000
            self._append(self._silent_frame)
        self._check_limits(now)

    def add_announcement(self, announcement: Announcement, audio: bytes) -> None:
        """The audio of one of `announcements`; empty if speech synthesis failed. It is dropped if the call's speech was
        interrupted while it was synthesized."""
        self._pending_texts -= 1
        if not audio or announcement.generation != self._generation:
            return
        self._announcement_count += 1
        item_id = f"announcement_{self._announcement_count}"
        self._announced[item_id] = Span(announcement.text, 0.0, len(audio) / self._bytes_per_ms)
        self._playout.add(item_id, audio)
        self._playout.end_item()
        self.announcement_audio.append(audio)

    def hang_up(self, reason: str, farewell: str, now: float) -> None:
        """End the call after a farewell."""
        if self._hanging_up is None:
            self._hanging_up = (reason, now + _MAX_FAREWELL_S)
            self._interrupt(now)
            self._announce(farewell)

    # From the conversation.

    def on_server_event(self, event: ServerEvent, now: float) -> None:
        """Handle an event of the conversation."""
        fields: dict[str, Any] = event.model_extra or {}
        match event.type:
            case "response.created":
                self._response_id, self._may_resume = str(fields["response"]["id"]), False
            case "response.output_audio.delta" if (
                fields["response_id"] != self._dropped_response_id and not self._hanging_up
            ):
                self._playout.add(fields["item_id"], base64.b64decode(fields["delta"]))
            case "response.output_audio.done" if fields["response_id"] != self._dropped_response_id:
                self._playout.end_item()
            case "response.done":
                self._response_id = None
            case "conversation.item.done":
                self._on_item(fields["item"])
            case "input_audio_buffer.speech_started":
                self._prompts_spoken = 0
                if not self._hanging_up:
                    self._may_resume = self._response_id is not None or self._playout.busy(now)
                    self._interrupt(now)
            case "rejoinder.phase":
                self._phase = str(fields["phase"])
            case "error":
                _log.info("the conversation refused an event of the call: %s", fields["error"]["code"])

    def _on_item(self, item: Mapping[str, Any]) -> None:
        """Find the functions that have returned among finished items, in the protocol's format."""
        match item["type"]:
            case "function_call" if item["status"] == "completed":
                self._running_functions[item["call_id"]] = (item["name"], item["arguments"])
            case "function_call_output" if item["call_id"] in self._running_functions:
                name, arguments = self._running_functions.pop(item["call_id"])
                self.called_functions.append(CalledFunction(name, arguments, item["output"]))
            case "mcp_call":
                output = item["output"] if item["error"] is None else item["error"]["message"]
                self.called_functions.append(CalledFunction(item["name"], item["arguments"], output))

    def _interrupt(self, now: float) -> None:
        """Stop speaking, and keep only what was heard in the conversation's history."""
        self._generation += 1
        if not self._playout.busy(now):
            return
        self._dropped_response_id = self._response_id
        truncations = self._playout.clear(now)
        self._send(self._dialect.clear())
        self.announcement_audio.append(b"")
        for truncation in truncations:
            self._truncate(truncation)

    def _truncate(self, truncation: Truncation) -> None:
        if truncation.item_id in self._announced:
            self._remember_announcement(truncation.item_id, truncation.heard_ms)
            return
        self.client_events.append(
            ConversationItemTruncate(
                type="conversation.item.truncate",
                item_id=truncation.item_id,
                content_index=0,
                audio_end_ms=truncation.heard_ms,
            )
        )

    def _remember_announcement(self, item_id: str, heard_ms: float) -> None:
        """Add the part of an announcement that was heard to the conversation."""
        if text := self._announced.pop(item_id).text_heard_by(heard_ms):
            self._create_item("assistant", Text(type="output_text", text=text))

    def _on_digit(self, digit: str, now: float) -> None:
        """A key interrupts speech, as in every telephone menu. The model gets a sequence of keys as one message."""
        self._prompts_spoken = 0
        self.client_events.append(Dtmf(type="rejoinder.dtmf", digit=digit))
        if not self._hanging_up:
            self._interrupt_response(now)
        self._digits = (self._digits + digit)[:_MAX_DIGITS]
        self._digits_deadline = now + (0.0 if digit == "#" else _DIGIT_PAUSE_S)

    def _interrupt_response(self, now: float) -> None:
        self._interrupt(now)
        if self._response_id is not None:
            self._dropped_response_id = self._response_id
        if self._response_id is not None or self._may_resume:
            self._may_resume = False
            self.client_events.append(ResponseCancel(type="response.cancel"))

    def _submit_digits(self, now: float) -> None:
        """Respond to the keys, instead of going on with a response that has begun since and knows nothing of them."""
        if not self._hanging_up:
            self._interrupt_response(now)
        self._create_item("system", Text(type="input_text", text=keys_message(self._digits)))
        self._digits = ""
        self.client_events.append(ResponseCreate(type="response.create"))

    # Silence and time.

    def _check_limits(self, now: float) -> None:
        """Prompt a silent caller, and end the call after too much silence or time."""
        silent = self._phase == "listening" and not self._pending_texts and not self._playout.busy(now)
        if not silent:
            self._last_active_at = now
        if self._hanging_up is not None:
            reason, deadline = self._hanging_up
            farewell_played = not self._pending_texts and not self._playout.busy(now)
            if self.end_reason is None and (farewell_played or now >= deadline):
                self._send(self._dialect.hang_up())
                self.end_reason = reason
        elif now - self._started_at >= self._settings.max_duration_s:
            reason = f"the time limit of {self._settings.max_duration_s:.0f} s was reached"
            self.hang_up(reason, self._settings.time_limit_farewell, now)
        elif now - self._last_active_at >= self._settings.silence_timeout_s:
            self._last_active_at = now
            if self._prompts_spoken < len(self._settings.silence_prompts):
                self._announce(self._settings.silence_prompts[self._prompts_spoken])
                self._prompts_spoken += 1
            else:
                self.hang_up("the caller was silent", self._settings.silence_farewell, now)

    def _announce(self, text: str) -> None:
        if text.strip():
            self._pending_texts += 1
            self.announcements.append(Announcement(text, self._generation))

    def _append(self, data: bytes) -> None:
        if not data:
            return
        audio = to_base64(data)
        if len(audio) > MAX_EVENT_BYTES:
            _log.info("dropped %d bytes of audio in one frame: a client event may have %d", len(audio), MAX_EVENT_BYTES)
            return
        self.client_events.append(InputAudioBufferAppend(type="input_audio_buffer.append", audio=audio))

    def _create_item(self, role: Literal["system", "assistant"], content: Text) -> None:
        item = MessageItem(type="message", role=role, content=[content])
        self.client_events.append(ConversationItemCreate(type="conversation.item.create", item=item))

    def _send(self, frame: Frame | None) -> None:
        if frame is not None:
            self.frames.append(frame)
