"""A simulated phone call on a virtual clock: a carrier, the person who calls, and the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np

from lab.simulator.carriers import (
    CARRIERS,
    CalledFunction,
    Carrier,
    Clear,
    HangUp,
    Mark,
    Play,
    parse_called_function,
)
from server.access.admission import Admission, Slot
from server.realtime.conversation import RealtimeConversation
from server.realtime.events import ServerEvent
from server.telephony.announcements import Announcements
from server.telephony.carriers.audiosocket import AudioSocket
from server.telephony.carriers.detection import detect_carrier
from server.telephony.connection import AdmittedCall, Connection
from server.telephony.dialect import Frame
from server.telephony.settings import CallSettings
from tests.fakes import FakeLanguageModel, FakeVoice, fake_speech_models, run_on_virtual_clock
from tests.server.realtime.conversation_client import new_conversation
from voice.audio.codec import decode, encode


class VirtualCaller:
    """A carrier that plays what it receives, and the person who calls. Implements `connection.Transport`.

    Attributes:
        echo: fraction of the played audio that returns in the caller's audio, 150 ms later.
        closed: code and reason that the server closed with.
        slot: of the call; None if no line is free for it.
        words_end: when the caller last stopped speaking.
        context: fields of the server's `ServerContext`.
    """

    def __init__(self, name: str = "twilio", settings: CallSettings | None = None, **parameters: str) -> None:
        self.carrier: Carrier = CARRIERS[name](parameters)
        self.settings = settings or CallSettings(greeting="")
        self.language_model, self.voice = FakeLanguageModel(), FakeVoice()
        self.speech_models = fake_speech_models(voice=self.voice)
        self.announcements: Announcements | None = None
        self.context: dict[str, Any] = {}
        self.events: list[ServerEvent] = []
        self.conversation: RealtimeConversation | None = None
        self.to_server: asyncio.Queue[Frame | None] = asyncio.Queue()
        self.closed: tuple[int, str] | None = None
        self.commands: list[Any] = []
        self.functions: list[CalledFunction] = []
        self.chunks: list[tuple[float, float, bool]] = []
        self.play_until = 0.0
        self.pending_marks: list[tuple[float, str]] = []
        self.clears, self.words_end = 0, 0.0
        self.admission = Admission()
        self.slot: Slot | None = self.admission.reserve("phone")
        self.echo, self.played = 0.0, np.zeros(120 * self.carrier.rate, np.float32)

    # What the server calls.

    async def receive(self) -> Frame | None:
        return await self.to_server.get()

    async def send(self, frame: Frame) -> None:
        now = asyncio.get_running_loop().time()
        if (called := parse_called_function(frame)) is not None:
            self.functions.append(called)
            return
        command = self.carrier.parse(frame)
        self.commands.append(command)
        match command:
            case Play():
                samples = decode(command.data, self.carrier.encoding)
                start = max(now, self.play_until)
                self.play_until = start + len(samples) / self.carrier.rate
                self.chunks.append((start, self.play_until, bool(np.abs(samples).max() > 0.1)))
                position = round(start * self.carrier.rate)
                self.played[position : position + len(samples)] = samples
            case Mark():
                self.pending_marks.append((max(now, self.play_until), command.name))
            case Clear():
                self.clears += 1
                self.chunks = [(start, min(end, max(start, now)), loud) for start, end, loud in self.chunks]
                self.play_until = now
                self.played[round(now * self.carrier.rate) :] = 0
                if self.carrier.clear_returns_marks:
                    for _, name in self.pending_marks:
                        self.reply(self.carrier.mark_played(name))
                self.pending_marks.clear()
            case HangUp():
                self.to_server.put_nowait(None)

    async def close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)

    # What the caller does.

    def reply(self, frame: Frame | None) -> None:
        if frame is not None:
            self.to_server.put_nowait(frame)

    async def speak(self, seconds: float, amplitude: float = 0.5) -> None:
        loop = asyncio.get_running_loop()
        block = np.full(self.carrier.rate // 50, amplitude, np.float32)
        for _ in range(round(seconds * 50)):
            position = round((loop.time() - 0.15) * self.carrier.rate)
            echo = self.echo * self.played[position : position + len(block)] if position >= 0 else 0.0
            self.reply(self.carrier.audio(encode(block + echo, self.carrier.encoding)))
            await asyncio.sleep(0.02)
            while self.pending_marks and self.pending_marks[0][0] <= loop.time():
                self.reply(self.carrier.mark_played(self.pending_marks.pop(0)[1]))

        if amplitude:
            self.words_end = loop.time()

    async def listen(self, seconds: float) -> None:
        await self.speak(seconds, 0.0)

    async def ask(self) -> None:
        await self.speak(1.0)
        await self.listen(3.0)

    def press(self, digits: str) -> None:
        for digit in digits:
            self.reply(self.carrier.dtmf(digit))

    @property
    def heard_s(self) -> float:
        """How much audible sound was played."""
        return sum(end - start for start, end, loud in self.chunks if loud)

    @property
    def history(self) -> list[tuple[str, str]]:
        """The conversation as the language model sees it, without its instructions."""
        assert self.conversation is not None
        messages = self.conversation.session.history.messages("")
        return [(message.role, message.content) for message in messages[1:]]

    def open_conversation(self, send: Callable[[ServerEvent], None], restored: object) -> RealtimeConversation:
        def record_and_send(event: ServerEvent) -> None:
            self.events.append(event)
            send(event)

        self.conversation = new_conversation(
            self.language_model, self.speech_models, record_and_send, slot=self.slot, **self.context
        )
        if self.echo:
            self.conversation.session._clock = asyncio.get_running_loop().time
        return self.conversation

    async def run(self, script: Callable[[VirtualCaller], Coroutine[Any, Any, None]]) -> None:
        self.announcements = self.announcements or Announcements(self.speech_models)
        detect = (lambda frame: AudioSocket()) if self.carrier.name == "audiosocket" else detect_carrier
        admitted = AdmittedCall(self.slot, self.open_conversation) if self.slot is not None else None
        connection = Connection(self, "test", self.settings, self.announcements, admitted)
        call = asyncio.create_task(connection.run(detect))
        for frame in self.carrier.opening_frames():
            self.reply(frame)
        await script(self)
        self.reply(self.carrier.stop())
        self.to_server.put_nowait(None)
        await call


def run_call(
    script: Callable[[VirtualCaller], Coroutine[Any, Any, None]], caller: VirtualCaller | None = None
) -> VirtualCaller:
    """Run a whole call, in which the caller does what the script says."""
    caller = caller or VirtualCaller()
    run_on_virtual_clock(lambda: caller.run(script))
    return caller
