"""Tasks that end with what has begun them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

_log = logging.getLogger("rejoinder.agent")

T = TypeVar("T")

_RESTART_S = 1.0
"""How long work rests after a failure."""


class BackgroundTasks:
    """Tasks that nobody waits for: those of a conversation, or of whatever else ends."""

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
        await cancel(self._tasks)


@asynccontextmanager
async def batch(requests: Iterable[Coroutine[Any, Any, T]]) -> AsyncIterator[list[asyncio.Task[T]]]:
    """Start requests to a language model, which the engine generates together. Those that run at the end of the block
    are cancelled, and have ended when it is left."""
    tasks = [asyncio.create_task(request) for request in requests]
    try:
        yield tasks
    finally:
        await cancel(tasks)


async def cancel(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks, and wait for their end."""
    tasks = tuple(tasks)
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
