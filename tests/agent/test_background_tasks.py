"""Tasks that nobody waits for."""

from __future__ import annotations

import asyncio
import logging

import pytest

from agent.background_tasks import BackgroundTasks, supervised
from tests.fakes import run_on_virtual_clock


def test_work_that_fails_is_logged_and_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    begun: list[int] = []

    async def work() -> None:
        begun.append(len(begun))
        if len(begun) < 3:
            raise ValueError("a record that cannot be written")
        await asyncio.Event().wait()

    async def run() -> None:
        tasks = BackgroundTasks()
        task = tasks.spawn(supervised(work))
        await asyncio.sleep(10)
        assert not task.done()
        await tasks.close()
        assert task.cancelled()

    with caplog.at_level(logging.ERROR):
        run_on_virtual_clock(run)
    assert begun == [0, 1, 2]
    assert len(caplog.records) == 2
