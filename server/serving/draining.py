"""uvicorn that lets conversations finish before it stops, and then exits with status 0."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from types import FrameType

import uvicorn

_log = logging.getLogger("rejoinder.server")


class DrainingServer(uvicorn.Server):
    """Stops in two steps: the first signal drains, a second one, or the end of draining, stops.

    Args:
        drain: ends the conversations; returns whether all ended in time.
    """

    def __init__(self, config: uvicorn.Config, drain: Callable[[], Awaitable[bool]]) -> None:
        super().__init__(config)
        self._drain = drain
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle SIGTERM or SIGINT. uvicorn would raise the signal again in the end, so that the process died of it."""
        if self._loop is None or not self.started or self._draining is not None:
            self.force_exit = self.should_exit
            self.should_exit = True
        else:
            self._draining = self._loop.create_task(self._drain_and_stop())

    def call_soon(self, function: Callable[[], None]) -> None:
        """Call a function on the event loop, from any thread."""
        if self._loop is None:
            function()
        else:
            self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """Stop at once, from any thread; open connections get `timeout_graceful_shutdown` seconds."""
        self.should_exit = True

    async def _drain_and_stop(self) -> None:
        _log.info("shutting down: nobody is admitted any more, and conversations finish their turns")
        try:
            if not await self._drain():
                _log.warning("some conversations did not finish in time and are cut off")
        finally:
            self.should_exit = True
