"""What hangs is noticed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from server.observability.stages import StageExecutor
from server.serving.watchdog import Heartbeat, Watchdog
from tests.real_time import HANG_S


def test_a_stage_that_hangs_is_reported_once() -> None:
    release, reported = threading.Event(), threading.Event()
    reasons: list[str] = []
    with ThreadPoolExecutor(1) as inner:
        stage = StageExecutor("synthesis", inner)

        def on_hang(reason: str) -> None:
            reasons.append(reason)
            reported.set()

        watchdog = Watchdog([stage], 0.1, on_hang)
        watchdog.start()
        try:
            stage.submit(release.wait)
            assert reported.wait(HANG_S)
        finally:
            release.set()
            watchdog.stop()
    assert len(reasons) == 1
    assert "synthesis has hung for 0.1 s" in reasons[0]


def test_a_heartbeat_is_long_only_while_nobody_answers() -> None:
    asked: list[Callable[[], None]] = []
    heart = Heartbeat("the language model", asked.append)
    assert heart.longest_s == 0
    assert heart.longest_s > 0
    assert len(asked) == 1
    asked[0]()
    assert heart.longest_s == 0  # and asks again
    assert len(asked) == 2


def test_a_closed_thread_is_not_asked() -> None:
    def closed(answer: Callable[[], None]) -> None:
        raise RuntimeError("the engine was closed")

    heart = Heartbeat("the language model", closed)
    assert [heart.longest_s for _ in range(3)] == [0.0] * 3
