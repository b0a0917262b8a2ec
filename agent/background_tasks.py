"""Tasks that nobody waits for. They end with what has begun them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_log = logging.getLogger("rejoinder.agent")

T = TypeVar("T")

_RESTART_S = 1.0
"""How long work rests after a failure."""


class BackgroundTasks:
    """The tasks of a conversation, or of whatever else ends."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a task. It may be waited for, but need not be."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # the event loop itself would let it be garbage
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Cancel all of them, and wait for their end."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def supervised(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do work that goes on until it is cancelled, such as keeping records. If it fails, that is logged, and it begins
    again."""
    while True:
        try:
            return await work()
        except Exception:
            _log.exception("work in the background has failed; it begins again")
            await asyncio.sleep(_RESTART_S)
