"""Accounts of the threads that run the speech models."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from server.observability import stages
from server.observability.stages import StageExecutor, StageOverloaded
from tests.fakes import InlineExecutor
from tests.real_time import wait_until


def test_jobs_are_counted_and_their_results_and_errors_pass_through() -> None:
    now, failed = [0.0], []
    stage = StageExecutor("synthesis", InlineExecutor(), failed.append, lambda: now[0])

    def work(seconds: float) -> str:
        now[0] += seconds
        assert stage.longest_s == seconds
        return "done"

    assert stage.submit(work, 2.0).result() == "done"
    with pytest.raises(ZeroDivisionError):
        stage.submit(lambda: 1 / 0).result()
    assert (stage.jobs, stage.failures, stage.busy_s, stage.queued, stage.longest_s) == (2, 1, 2.0, 0, 0.0)
    assert failed == []


def test_an_error_of_a_device_that_is_lost_is_reported() -> None:
    failed: list[str] = []
    stage = StageExecutor("recognition", InlineExecutor(), failed.append)

    def work() -> None:
        raise RuntimeError("CUDA failed with error an illegal memory access was encountered")

    with pytest.raises(RuntimeError):
        stage.submit(work).result()
    assert len(failed) == 1 and "recognition" in failed[0]


async def test_the_queue_is_bounded_and_cancelled_jobs_leave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "_MAX_QUEUED", 2)
    release = threading.Event()
    with ThreadPoolExecutor(1) as inner:
        stage = StageExecutor("synthesis", inner)
        try:
            stage.submit(release.wait)
            await wait_until(lambda: stage.queued == 0 and stage.longest_s > 0)
            waiting = [stage.submit(release.wait) for _ in range(2)]
            with pytest.raises(StageOverloaded, match="synthesis"):
                stage.submit(release.wait)
            assert (stage.queued, stage.refused) == (2, 1)
            assert waiting[0].cancel()
            assert stage.queued == 1
            stage.submit(release.wait)
        finally:
            release.set()
    assert stage.queued == 0
