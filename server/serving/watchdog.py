"""Notices when a part of the process hangs, so that a supervisor can start it again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from model.engine.engine import Engine
from model.engine.scheduler import RequestSteps

_INTERVAL_S = 1.0


class Watched(Protocol):
    """Something that may hang."""

    @property
    def name(self) -> str:
        """What the operator calls it."""

    @property
    def longest_s(self) -> float:
        """How long it has been busy with one thing."""


class Heartbeat:
    """Asks a thread again and again whether it still runs.

    Args:
        name: of what runs there.
        ask: passes a function to the thread, which is to call it as soon as it can.
    """

    def __init__(self, name: str, ask: Callable[[Callable[[], None]], object]) -> None:
        self.name, self._ask = name, ask
        self._asked_at: float | None = None

    @property
    def longest_s(self) -> float:
        """How long the thread has not answered."""
        if self._asked_at is not None:
            return time.monotonic() - self._asked_at
        self._asked_at = time.monotonic()
        try:
            self._ask(self._answered)
        except RuntimeError:  # it was closed
            self._asked_at = None
        return 0.0

    def _answered(self) -> None:
        self._asked_at = None


def engine_heartbeat(engine: Engine) -> Heartbeat:
    """Asks the language model's thread, between two forward passes."""

    def ask(answer: Callable[[], None]) -> None:
        engine.submit(_no_steps(), lambda error: None, answer, background=True)

    return Heartbeat("the language model", ask)


def _no_steps() -> RequestSteps:
    yield from ()


class Watchdog:
    """A thread that calls `on_hang` once if something hangs.

    Args:
        watched: what may hang.
        limit_s: how long one thing may take. A job of any stage takes seconds.
        on_hang: called on the watchdog's thread, with a sentence.
    """

    def __init__(self, watched: Sequence[Watched], limit_s: float, on_hang: Callable[[str], None]) -> None:
        self._watched, self._limit_s, self._on_hang = watched, limit_s, on_hang
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rejoinder-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(min(_INTERVAL_S, self._limit_s / 4)):
            for one in self._watched:
                if one.longest_s > self._limit_s:
                    self._on_hang(f"{one.name} has hung for {self._limit_s:g} s; the process must be started again")
                    return
