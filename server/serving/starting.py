"""What a server answers before its models are loaded and tried: the page, and that it is not ready. Who wants to talk
waits, and interrupts a trial."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AsyncExitStack

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from agent.background_tasks import cancel
from server.page import PageFiles
from server.security_headers import SecurityHeaders
from server.serving.service import Service
from server.serving.trial import Start

_NOT_THE_PAGE = ("/v1/", "/metrics", "/dashboard", "/drain")
"""Beginnings of paths that only the loaded server answers. Who asks for one does not want to talk."""


class StartingApp:
    """An ASGI application that loads a service, and then is that service.

    Args:
        load: loads it, in a thread of its own.
        start: what `load` does.
        on_loaded: called once the models are loaded.
        on_ready: called once the service accepts connections.
        on_failure: called if it cannot be loaded.

    Attributes:
        service: None until it is loaded.
        error: why it could not be loaded.
    """

    def __init__(
        self,
        load: Callable[[], Service],
        start: Start,
        on_loaded: Callable[[Service], None],
        on_ready: Callable[[Service], None],
        on_failure: Callable[[], None],
    ) -> None:
        self._load, self._start = load, start
        self._on_loaded, self._on_ready, self._on_failure = on_loaded, on_ready, on_failure
        self.service: Service | None = None
        self.error: BaseException | None = None
        self._is_ready, self._stack = asyncio.Event(), AsyncExitStack()
        self._page = Starlette(
            routes=[
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Mount("/", PageFiles()),
            ],
            middleware=[Middleware(SecurityHeaders)],
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if not self._is_ready.is_set():
            talks = scope["type"] == "websocket" or scope["method"] == "POST" or scope["path"].startswith("/phone")
            if not talks:
                busy = scope["path"].startswith(_NOT_THE_PAGE)
                await (_not_ready() if busy else self._page)(scope, receive, send)
                return
            self._start.visited.set()
            await self._is_ready.wait()
        assert self.service is not None  # it is ready
        await self.service.app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        starting = asyncio.create_task(self._begin())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._start.visited.set()
        await cancel([starting])
        await self._stack.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def _begin(self) -> None:
        try:
            self.service = service = await _in_thread(self._load)
            self._on_loaded(service)
            await self._stack.enter_async_context(service.app.router.lifespan_context(service.app))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.error = error
            self._on_failure()
            return
        self._is_ready.set()
        self._on_ready(service)

    async def _healthz(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "starting": self._start.doing})

    async def _readyz(self, request: Request) -> Response:
        return _not_ready()


def _not_ready() -> Response:
    return JSONResponse({"status": "starting"}, 503, {"retry-after": "10"})


def _in_thread(load: Callable[[], Service]) -> asyncio.Future[Service]:
    """Call a function in a thread that does not keep the process from ending."""
    loaded = Future[Service]()
    loaded.set_running_or_notify_cancel()  # so that nobody cancels it

    def run() -> None:
        try:
            loaded.set_result(load())
        except BaseException as error:
            loaded.set_exception(error)

    threading.Thread(target=run, name="rejoinder-start", daemon=True).start()
    return asyncio.wrap_future(loaded)
