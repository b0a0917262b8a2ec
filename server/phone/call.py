"""One call: a carrier's stream on one side, a Realtime conversation on the other. Sans I/O.

What the carrier says goes in through `hear`, the conversation's events through `told`, the time through `tick`; what
they are to get lies in `frames` and `events` afterwards. `line.py` owns the socket, the clock and the conversation.
"""

from __future__ import annotations

import base64
import logging
from typing import Any

from server.phone.ordering import Ordering
from server.phone.playout import Cut, Playout
from server.phone.rules import CallRules
from server.phone.wire import FRAME_MS, Dialect, Digit, Frame, Heard, Held, Played, Sound, Started, Stopped, base64_text
from server.protocol import ServerEvent
from voice.audio import Encoding
from voice.history import Span

_log = logging.getLogger("rejoinder.phone")

_FORMATS = {"pcmu": "audio/pcmu", "pcma": "audio/pcma", "pcm": "audio/pcm"}
SILENCE: dict[Encoding, int] = {"pcmu": 0xFF, "pcma": 0xD5, "pcm": 0x00}
"""A byte of silence in each encoding."""

_GAP_S = 0.5
"""A line without sound for so long is fed silence, so that a turn can end: some carriers send nothing while nobody
speaks. Shorter gaps are frames that are late."""

_DIGITS_S = 1.5
"""A pause that ends a row of keys; people type a number with shorter ones."""

_MOST_DIGITS = 64

_GOODBYE_S = 20.0
"""The longest that a call waits for its farewell to be heard."""


class Call:
    """One call that has started.

    Args:
        dialect: the carrier's.
        started: what its first messages said.
        rules: how it is held.
        now: seconds, of the clock that every later call is on.

    Attributes:
        frames: for the carrier, to be taken and emptied.
        events: client events for the conversation, to be taken and emptied.
        texts: to be spoken word by word: `say` wants their sound.
        asides: sound of its own that the caller is sent, as the line carries it, for the conversation to know its echo
            by; empty when the line falls silent.
        over: why the call ended, once it did.
    """

    def __init__(self, dialect: Dialect, started: Started, rules: CallRules, now: float) -> None:
        self.frames: list[Frame] = []
        self.events: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self.asides: list[bytes] = []
        self.over: str | None = None
        self._dialect, self.rules = dialect, rules
        silence = SILENCE[dialect.encoding]
        self._bytes_per_ms = dialect.rate * (2 if dialect.encoding == "pcm" else 1) // 1000
        self._playout = Playout(
            self._bytes_per_ms, silence, piece_ms=dialect.piece_ms, ahead_ms=dialect.ahead_ms, marks=dialect.marks
        )
        self._ordering = Ordering(silence)
        self._silence = bytes([silence]) * (FRAME_MS * self._bytes_per_ms)
        self._said: dict[str, Span] = {}
        self._rendering = self._sayings = 0
        self._response: str | None = None
        self._dropped: str | None = None
        self._phase = "listening"
        self._digits, self._digits_until = "", 0.0
        self._began = self._sounded = self._spoke = now
        self._prompted = 0
        self._leaving: tuple[str, float] | None = None
        self._begin()

    def _begin(self) -> None:
        form: dict[str, Any] = {"type": _FORMATS[self._dialect.encoding]}
        if self._dialect.encoding == "pcm":
            form["rate"] = self._dialect.rate
        turns = {"type": "semantic_vad", "eagerness": self.rules.eagerness}
        sound = {
            "input": {"format": form, "turn_detection": turns},
            "output": {"format": form, "speed": self.rules.speed},
        }
        session = {"type": "realtime", "audio": sound, "instructions": self.rules.instructions}
        self._tell("session.update", session={**session, "include": ["rejoinder.phase"]})
        self._send(self._dialect.answer())
        self._say(self.rules.greeting)

    @property
    def form(self) -> tuple[float, Encoding, int]:
        """How `texts` are to be spoken: pace, encoding, and Hz."""
        return self.rules.speed, self._dialect.encoding, self._dialect.rate

    # The carrier.

    def hear(self, heard: Heard, now: float) -> None:
        """The carrier says something."""
        match heard:
            case Sound():
                self._sounded = now
                self._append(self._ordering.push(heard.data, heard.chunk))
            case Digit():
                self._press(heard.digit, now)
            case Played():
                self._playout.played(heard.mark)
            case Held():
                self._playout.hold(heard.full)
            case Stopped():
                self.over = self.over or heard.reason
            case Started():
                pass  # told once already

    def tick(self, now: float) -> None:
        """Time passes: send what is due. Wanted every 20 ms, and as soon as there is new sound."""
        for piece in self._playout.due(now):
            self._send(self._dialect.sound(piece.data))
            if piece.mark is not None:
                self._send(self._dialect.mark(piece.mark))
        for item_id in [item_id for item_id in self._said if self._playout.finished(item_id, now)]:
            self._remember(item_id, self._said[item_id].end_ms)
        if self._digits and now >= self._digits_until:
            self._hand_over_digits()
        while now - self._sounded >= _GAP_S:
            self._sounded += FRAME_MS / 1000
            self._append(self._silence)
        self._watch(now)

    def say(self, text: str, sound: bytes) -> None:
        """The sound of one of `texts`; empty when it could not be made."""
        self._rendering -= 1
        if not sound:
            return
        self._sayings += 1
        item_id = f"said_{self._sayings}"
        self._said[item_id] = Span(text, 0.0, len(sound) / self._bytes_per_ms)
        self._playout.add(item_id, sound)
        self._playout.end()
        self.asides.append(sound)

    def hang_up(self, reason: str, farewell: str, now: float) -> None:
        """End the call, after a farewell."""
        if self._leaving is None:
            self._leaving = (reason, now + _GOODBYE_S)
            self._interrupt(now)
            self._say(farewell)

    # The conversation.

    def told(self, event: ServerEvent, now: float) -> None:
        """The conversation says something."""
        more: dict[str, Any] = event.model_extra or {}
        match event.type:
            case "response.created":
                self._response = str(more["response"]["id"])
            case "response.output_audio.delta" if more["response_id"] != self._dropped and not self._leaving:
                self._playout.add(more["item_id"], base64.b64decode(more["delta"]))
            case "response.output_audio.done" if more["response_id"] != self._dropped:
                self._playout.end()
            case "response.done":
                self._response = None
            case "input_audio_buffer.speech_started":
                self._prompted = 0
                if not self._leaving:
                    self._interrupt(now)
            case "rejoinder.phase":
                self._phase = str(more["phase"])
            case "error":
                _log.info("a call's event was refused: %s", more["error"]["message"])

    def _interrupt(self, now: float) -> None:
        """Fall silent; of what was said, only what was heard is remembered."""
        if not self._playout.busy(now):
            return
        self._dropped = self._response
        cuts = self._playout.clear(now)
        self._send(self._dialect.clear())
        self.asides.append(b"")
        for cut in cuts:
            self._cut(cut)

    def _cut(self, cut: Cut) -> None:
        if cut.item_id in self._said:
            self._remember(cut.item_id, cut.heard_ms)
        else:
            self._tell("conversation.item.truncate", item_id=cut.item_id, content_index=0, audio_end_ms=cut.heard_ms)

    def _remember(self, item_id: str, heard_ms: float) -> None:
        """Put what was heard of a greeting or a prompt into the conversation."""
        if words := self._said.pop(item_id).heard_until(heard_ms):
            self._item("assistant", "output_text", words)

    def _press(self, digit: str, now: float) -> None:
        """A key ends what is being said, as on every telephone menu, and is told to the model with its neighbours."""
        self._prompted = 0
        self._tell("rejoinder.dtmf", digit=digit)
        if not self._leaving:
            self._interrupt(now)
            if self._response is not None:
                self._dropped = self._response
                self._tell("response.cancel")
        self._digits = (self._digits + digit)[:_MOST_DIGITS]
        self._digits_until = now + (0.0 if digit == "#" else _DIGITS_S)

    def _hand_over_digits(self) -> None:
        names = {"*": "star", "#": "hash"}
        pressed = " ".join(names.get(digit, digit) for digit in self._digits)
        self._item("system", "input_text", f"The caller pressed {pressed} on the telephone's keys.")
        self._digits = ""
        if self._response is None:
            self._tell("response.create")

    # Silence and time.

    def _watch(self, now: float) -> None:
        """Ask whether anybody is there, and end what is over."""
        quiet = self._phase == "listening" and not self._rendering and not self._playout.busy(now)
        if not quiet:
            self._spoke = now
        if self._leaving is not None:
            reason, at_the_latest = self._leaving
            if self.over is None and ((not self._rendering and not self._playout.busy(now)) or now >= at_the_latest):
                self._send(self._dialect.hang_up())
                self.over = reason
        elif now - self._began >= self.rules.longest_s:
            self.hang_up(f"its {self.rules.longest_s:.0f} s are over", self.rules.too_long, now)
        elif now - self._spoke >= self.rules.silence_s:
            self._spoke = now
            if self._prompted < len(self.rules.prompts):
                self._say(self.rules.prompts[self._prompted])
                self._prompted += 1
            else:
                self.hang_up("nobody says anything", self.rules.unheard, now)

    def _say(self, text: str) -> None:
        if text.strip():
            self._rendering += 1
            self.texts.append(text)

    def _append(self, data: bytes) -> None:
        if data:
            self._tell("input_audio_buffer.append", audio=base64_text(data))

    def _item(self, role: str, kind: str, text: str) -> None:
        content = [{"type": kind, "text": text}]
        self._tell("conversation.item.create", item={"type": "message", "role": role, "content": content})

    def _tell(self, kind: str, **fields: Any) -> None:
        self.events.append({"type": kind, **fields})

    def _send(self, frame: Frame | None) -> None:
        if frame is not None:
            self.frames.append(frame)
