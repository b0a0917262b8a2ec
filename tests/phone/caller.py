"""Somebody on the telephone: a carrier and a person at its end, and a conversation, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np

from server.calling.carriers import CARRIERS, Carrier, Clear, HangUp, Mark, Play
from server.phone.audiosocket import AudioSocket
from server.phone.dialects import recognised
from server.phone.line import Line
from server.phone.prompts import Prompts
from server.phone.rules import CallRules
from server.phone.wire import Frame
from server.protocol import ServerEvent
from server.realtime import RealtimeConversation
from tests.fakes import FakeBrain, FakeVoice, fake_stages, virtually
from voice.audio import decode, encode
from voice.clauses import Clause


class CountingVoice(FakeVoice):
    """Remembers what it said."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def say(self, clause: Clause, speed: float = 1.0) -> Any:
        self.said.append(clause.text.strip())
        return super().say(clause, speed)


class Caller:
    """A carrier that plays what it is sent, and the person at its other end.

    Attributes:
        echo: how much of what is played the telephone hears back, 150 ms later.
        closed: code and reason that the server closed with.
    """

    def __init__(self, name: str = "twilio", rules: CallRules | None = None, **parameters: str) -> None:
        self.carrier: Carrier = CARRIERS[name](parameters)
        self.rules = rules or CallRules(greeting="")
        self.brain, self.voice = FakeBrain(), CountingVoice()
        self.stages = fake_stages(voice=self.voice)
        self.prompts: Prompts | None = None
        self.events: list[ServerEvent] = []
        self.conversation: RealtimeConversation | None = None
        self.to_server: asyncio.Queue[Frame | None] = asyncio.Queue()
        self.closed: tuple[int, str] | None = None
        self.orders: list[Any] = []
        self.pieces: list[tuple[float, float, bool]] = []
        self.until = 0.0
        self.pending: list[tuple[float, str]] = []
        self.clears = 0
        self.echo, self.played = 0.0, np.zeros(120 * self.carrier.rate, np.float32)

    # The server's side of the wire.

    async def receive(self) -> Frame | None:
        return await self.to_server.get()

    async def send(self, frame: Frame) -> None:
        now = asyncio.get_running_loop().time()
        order = self.carrier.take(frame)
        self.orders.append(order)
        match order:
            case Play():
                sound = decode(order.data, self.carrier.encoding)
                start = max(now, self.until)
                self.until = start + len(sound) / self.carrier.rate
                self.pieces.append((start, self.until, bool(np.abs(sound).max() > 0.1)))
                at = round(start * self.carrier.rate)
                self.played[at : at + len(sound)] = sound
            case Mark():
                self.pending.append((max(now, self.until), order.name))
            case Clear():
                self.clears += 1
                self.pieces = [(a, min(b, max(a, now)), loud) for a, b, loud in self.pieces]
                self.until = now
                self.played[round(now * self.carrier.rate) :] = 0
                if self.carrier.clear_returns_marks:
                    for _, name in self.pending:
                        self.reply(self.carrier.played(name))
                self.pending.clear()
            case HangUp():
                self.to_server.put_nowait(None)

    async def close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)

    # The person's side.

    def reply(self, frame: Frame | None) -> None:
        if frame is not None:
            self.to_server.put_nowait(frame)

    async def speak(self, seconds: float, loudness: float = 0.5) -> None:
        loop = asyncio.get_running_loop()
        block = np.full(self.carrier.rate // 50, loudness, np.float32)
        for _ in range(round(seconds * 50)):
            at = round((loop.time() - 0.15) * self.carrier.rate)
            back = self.echo * self.played[at : at + len(block)] if at >= 0 else 0.0
            self.reply(self.carrier.sound(encode(block + back, self.carrier.encoding)))
            await asyncio.sleep(0.02)
            while self.pending and self.pending[0][0] <= loop.time():
                self.reply(self.carrier.played(self.pending.pop(0)[1]))

    async def listen(self, seconds: float) -> None:
        await self.speak(seconds, 0.0)

    async def ask(self) -> None:
        await self.speak(1.0)
        await self.listen(3.0)

    def press(self, digits: str) -> None:
        for digit in digits:
            self.reply(self.carrier.digit(digit))

    @property
    def heard_s(self) -> float:
        """How much audible sound was played."""
        return sum(b - a for a, b, loud in self.pieces if loud)

    @property
    def told(self) -> list[tuple[str, str]]:
        """What the model knows."""
        assert self.conversation is not None
        items = self.conversation.session.history.messages("")
        return [(message.role, message.content) for message in items[1:]]

    def begin(self, send: Callable[[ServerEvent], None]) -> RealtimeConversation:
        def both(event: ServerEvent) -> None:
            self.events.append(event)
            send(event)

        self.conversation = RealtimeConversation(self.brain, self.stages, "tiny", both)
        if self.echo:
            self.conversation.session._clock = asyncio.get_running_loop().time
        return self.conversation

    async def run(self, work: Callable[[Caller], Coroutine[Any, Any, None]]) -> None:
        self.prompts = self.prompts or Prompts(self.stages)
        asked = (lambda frame: AudioSocket()) if self.carrier.name == "audiosocket" else recognised
        line = asyncio.create_task(Line(self, "test", self.rules, self.prompts, self.begin).run(asked))
        for frame in self.carrier.opening():
            self.reply(frame)
        await work(self)
        self.reply(self.carrier.stop())
        self.to_server.put_nowait(None)
        await line


def call(work: Callable[[Caller], Coroutine[Any, Any, None]], caller: Caller | None = None) -> Caller:
    caller = caller or Caller()
    virtually(lambda: caller.run(work))
    return caller
