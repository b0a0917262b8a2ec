"""A session with fakes for its stages, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import numpy as np

from tests.fakes import FakeBrain, FakeRecognizer, FakeVoice, fake_stages, virtually
from voice import events
from voice.session import Session
from voice.speaking import Settings

BLOCK_S = 0.02
E = TypeVar("E")


class Table:
    """A session and everything it said."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.brain, self.recognizer, self.voice = FakeBrain(), FakeRecognizer(), FakeVoice()
        self.happened: list[tuple[float, events.SessionEvent]] = []
        self.loop = asyncio.get_running_loop()
        stages = fake_stages(self.recognizer, self.voice)
        self.session = Session(self.brain, stages, self.note, settings, clock=self.loop.time)

    def note(self, event: events.SessionEvent) -> None:
        self.happened.append((self.loop.time(), event))

    async def hear(self, seconds: float, loudness: float, rate: int = 16_000) -> None:
        for _ in range(round(seconds / BLOCK_S)):
            await asyncio.sleep(BLOCK_S)
            self.session.append(np.full(int(rate * BLOCK_S), loudness, np.float32), rate)

    async def ask(self, silence: float = 2.0) -> None:
        await self.hear(1.0, 0.5)
        await self.hear(silence, 0.0)

    def all(self, kind: type[E]) -> list[E]:
        return [event for _, event in self.happened if isinstance(event, kind)]

    def time_of(self, kind: type[object], which: int = 0) -> float:
        return [at for at, event in self.happened if isinstance(event, kind)][which]


def table(work: Callable[[Table], Coroutine[Any, Any, None]], settings: Settings | None = None) -> Table:
    async def run() -> Table:
        laid = Table(settings)
        await work(laid)
        await laid.session.close()
        return laid

    return virtually(run)
