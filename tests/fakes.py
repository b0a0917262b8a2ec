"""Fakes of the stages, and an event loop on a virtual clock: a wait of minutes takes no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from voice.asr import Segment, Window
from voice.audio import HEARING_RATE, SPEAKING_RATE, Samples
from voice.brain import Message
from voice.clauses import Clause
from voice.prosody import Melody
from voice.stages import Stages
from voice.vad import WINDOW, WINDOW_MS, Frame

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Instead of waiting, moves the clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer. Nothing in it may wait for a thread or a socket."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def virtually(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `work` on a virtual clock."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work())
    finally:
        loop.close()


class Inline(Executor):
    """Runs work where it is submitted."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class LoudnessDetector:
    """Speech is what is loud."""

    def __init__(self, silero: object) -> None:
        self._rest: Samples = np.zeros(0, np.float32)
        self._seen = 0

    def push(self, samples: Samples) -> list[Frame]:
        self._rest = np.concatenate((self._rest, samples))
        frames = []
        while len(self._rest) >= WINDOW:
            window, self._rest = self._rest[:WINDOW], self._rest[WINDOW:]
            start, self._seen = self._seen * WINDOW_MS, self._seen + 1
            frames.append(Frame(float(np.abs(window).mean() > 0.1), start, start + WINDOW_MS))
        return frames


class FakeRecognizer:
    """Says `text` when it hears anything loud."""

    def __init__(self, text: str = "What is the capital of France?") -> None:
        self.text, self.failing = text, False
        self.heard_s: list[float] = []
        self.windows: list[Window | None] = []

    def transcribe(
        self, audio: Samples, window: Window | None = None, unwanted: Callable[[], bool] = lambda: False
    ) -> list[Segment]:
        if self.failing:
            raise RuntimeError("the recognizer broke")
        self.heard_s.append(len(audio) / HEARING_RATE)
        self.windows.append(window)
        loud = bool(len(audio)) and float(np.abs(audio).max()) > 0.1
        return [Segment(self.text, 0, len(audio) / HEARING_RATE, True)] if loud and self.text else []


class FakeVoice:
    """Speaks 100 ms a word."""

    name = "fake"

    def __init__(self) -> None:
        self.failing = False

    def say(self, clause: Clause, speed: float = 1.0) -> Samples:
        if self.failing:
            raise RuntimeError("the voice broke")
        count = int(len(clause.text.split()) * SPEAKING_RATE // 10 / speed)
        return np.random.default_rng(0).choice((-0.5, 0.5), count).astype(np.float32)


@dataclass(frozen=True)
class FakeProgress:
    committed: str
    draft: str = ""
    step: int = 1
    tokens: int = 1
    finished: str | None = None
    confidence: tuple[float, ...] = ()
    prompt_tokens: int = 30
    cached_tokens: int = 20


@dataclass
class FakeBrain:
    """Says `words`, one every `pace` seconds."""

    words: list[str] = field(default_factory=lambda: ["The", " capital", " of", " France", " is", " Paris."])
    pace: float = 0.02
    failing: bool = False
    prompts: list[list[Message]] = field(default_factory=list)
    prepared: list[list[Message]] = field(default_factory=list)
    cancelled: int = 0
    over: float | None = None
    rested: list[float] = field(default_factory=list)

    async def reply(
        self, messages: Sequence[Message], *, max_tokens: int | None = None, deadline: float | None = None
    ) -> AsyncIterator[FakeProgress]:
        self.prompts.append(list(messages))
        for n, word in enumerate(self.words[:max_tokens], 1):
            await asyncio.sleep(self.pace)
            if self.failing:
                raise RuntimeError("the brain broke")
            last = n == len(self.words) or n == max_tokens
            finished = None if not last else "stop" if n == len(self.words) else "length"
            yield FakeProgress(word, "…", n, n, finished)

    def prepare(self, messages: Sequence[Message]) -> None:
        self.prepared.append(list(messages))

    async def ends(self, text: str) -> float | None:
        return self.over

    def rest(self, seconds: float) -> None:
        self.rested.append(seconds)

    def cancel(self) -> None:
        self.cancelled += 1


def fake_stages(recognizer: FakeRecognizer | None = None, voice: FakeVoice | None = None) -> Stages:
    """Stages without models."""
    parts = (recognizer or FakeRecognizer(), None, voice or FakeVoice(), Melody())
    return Stages(*parts, Inline(), Inline(), Inline())  # type: ignore[arg-type]
