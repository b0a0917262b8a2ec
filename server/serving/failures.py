"""Failures that only a new process can mend: a device that cannot be used any more, or something that hangs."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace

from server.observability.stages import StageExecutor
from voice.speech_models import SpeechModels

_log = logging.getLogger("rejoinder.server")

_MAX_STOP_S = 12.0
"""How long an orderly end may take. A thread that hangs would keep Python from ending at all."""

EXIT_STATUS = 1


class Failures:
    """The failure that ends the process, with exit status 1: a supervisor then starts it again.

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
