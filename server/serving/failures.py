"""Failures that only a new process can mend: a device that cannot be used any more, or something that hangs. A
supervisor then starts it again."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from model.engine.engine import Engine
from model.engine.scheduler import RequestSteps
from server.observability.stages import StageExecutor
from voice.speech_models import SpeechModels

_log = logging.getLogger("rejoinder.server")

_MAX_STOP_S = 12.0
"""How long an orderly end may take. A thread that hangs would keep Python from ending at all."""

EXIT_STATUS = 1

_CHECK_INTERVAL_S = 1.0


class Failures:
    """The failure that ends the process, with exit status 1.

    Args:
        end_process: ends it if it does not end by itself.
    """

    def __init__(self, end_process: Callable[[int], object] = os._exit) -> None:
        self.reason = ""
        self._end_process = end_process
        self._on_failure: Callable[[], None] = lambda: None
        self._lock = threading.Lock()

    def on_failure(self, stop: Callable[[], None]) -> None:
        """Call `stop` when a failure is reported, or now if there was one."""
        self._on_failure = stop
        if self.reason:
            stop()

    def report(self, reason: str) -> None:
        """The process has to end. Called from any thread; the first failure counts."""
        with self._lock:
            if self.reason:
                return
            self.reason = reason
        _log.critical("%s", reason)
        self._on_failure()

    def report_hang(self, reason: str) -> None:
        """The process has to end, and a thread of it may never do: logs what every thread is doing."""
        faulthandler.dump_traceback(all_threads=True, file=sys.__stderr__ or sys.stderr)
        timer = threading.Timer(_MAX_STOP_S, self._end_process, (EXIT_STATUS,))
        timer.daemon = True
        timer.start()
        self.report(reason)


def with_accounts(
    models: SpeechModels, on_device_failure: Callable[[str], None]
) -> tuple[SpeechModels, list[StageExecutor]]:
    """The models, with threads that keep account of their work."""
    recognition = StageExecutor("recognition", models.recognition_executor, on_device_failure)
    synthesis = StageExecutor("synthesis", models.synthesis_executor, on_device_failure)
    turn_detection = StageExecutor("turn detection", models.turn_detection_executor, on_device_failure)
    watched = replace(
        models,
        recognition_executor=recognition,
        synthesis_executor=synthesis,
        turn_detection_executor=turn_detection,
    )
    return watched, [recognition, synthesis, turn_detection]


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


def watch(
    watched: Sequence[StageExecutor | Heartbeat], limit_s: float, on_hang: Callable[[str], None]
) -> Callable[[], None]:
    """Start a thread that calls `on_hang` once if something hangs. Returns what ends it.

    Args:
        limit_s: how long one thing may take. A job of any stage takes seconds.
        on_hang: called on that thread, with a sentence.
    """
    stopped = threading.Event()

    def run() -> None:
        while not stopped.wait(min(_CHECK_INTERVAL_S, limit_s / 4)):
            for one in watched:
                if one.longest_s > limit_s:
                    on_hang(f"{one.name} has hung for {limit_s:g} s; the process must be started again")
                    return

    threading.Thread(target=run, name="rejoinder-watchdog", daemon=True).start()
    return stopped.set
