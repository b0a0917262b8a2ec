"""The HTTP server of one process: how uvicorn is set up, how it lets conversations finish before it stops, and the port
that a replica of a cluster has of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode

from server.access.admission import Admission
from server.access.rate import TokenBucket
from server.realtime.websocket import RESUME_HEADER
from server.telephony.routes import is_not_about_denial

ELSEWHERE = "x-rejoinder-elsewhere"
"""Header of a load balancer that tries another replica if this one has no room."""

CHECK = "x-rejoinder-check"
"""Header of a load balancer that asks whether this replica answers at all. The application would ask the others too."""

SCHEME = "x-rejoinder-scheme"
"""Header of a load balancer that has ended TLS. `X-Forwarded-Proto` would say that the caller is behind a proxy."""

_log = logging.getLogger("rejoinder.server")

_CHECK, _ELSEWHERE, _SCHEME = CHECK.encode(), ELSEWHERE.encode(), SCHEME.encode()
_RESUME = RESUME_HEADER.encode()

MAX_FRAME_BYTES = 16 << 20
"""Larger websocket frames close the connection before they are fully read. Events above 1 MiB get an error event."""

_FRAMES_PER_SECOND, _FRAME_BURST = 1000, 8000
"""Of one websocket, with empty ones, pings, and parts of a message; more close it. A client that streams audio sends
fifty."""

_SLICE_BYTES = 8 << 10
"""What is parsed of a websocket at a time: 1,400 empty frames, in 4 ms."""

_MAX_CONNECTIONS = 1000
"""Open connections of all kinds. Further ones get HTTP 503, so that idle ones cannot use up the process's files."""

_MAX_HEAD_BYTES = 64 << 10
"""Of the request line and the headers, uvicorn's own limit. Of a websocket handshake they may have 8 KiB each."""

_LOOPBACK = "127.0.0.1"


class _StrictConnection(h11.Connection):
    """Refuses requests whose body has two lengths, or a framing that HTTP/1.0 does not know: a proxy may read another
    length, and take the rest for the next request (RFC 9112, 6.1). And those whose headers are too long, which h11
    reads if they come in one piece."""

    def next_event(self) -> Any:
        """See `Connection`. Raises RemoteProtocolError."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if b"transfer-encoding" in names and (b"content-length" in names or event.http_version < b"1.1"):
                raise h11.RemoteProtocolError("the length of the body is ambiguous")
            if sum(len(name) + len(value) for name, value in event.headers) > _MAX_HEAD_BYTES:
                raise h11.RemoteProtocolError("the headers are too long")
        return event


class _HttpProtocol(H11Protocol):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = _StrictConnection(h11.SERVER, _MAX_HEAD_BYTES)


class _WebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn leaves a connection open, and unanswered, whose handshake websockets cannot read; reads any number of
    frames at once; and keeps a pong for each ping of a client that does not read them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._frames = TokenBucket(_FRAMES_PER_SECOND, _FRAME_BURST)
        self._pong = b""

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        for start in range(0, len(data), _SLICE_BYTES):
            super().data_received(data[start : start + _SLICE_BYTES])
            if self.transport.is_closing():
                return
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()

    def handle_events(self) -> None:
        """Pass on what was read, unless these are too many frames."""
        if self._frames.take(len(self.conn.events)) > 0:
            self.conn.fail(CloseCode.POLICY_VIOLATION, "too many frames")
            self.handle_parser_exception()
        else:
            super().handle_events()

    def handle_ping(self) -> None:
        """Answer a ping; while the client does not read, only the last one (RFC 6455, 5.5.3)."""
        if self.writable.is_set():
            super().handle_ping()
        elif pongs := self.conn.data_to_send():
            self._pong = pongs[-1]

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        super().resume_writing()
        self.transport.write(self._pong)
        self._pong = b""


def http_config(app: ASGIApp, certificate: str | None = None, key: str | None = None) -> uvicorn.Config:
    """The settings of uvicorn.

    Args:
        certificate, key: paths of the TLS certificate and its key; None without TLS.
    """
    return uvicorn.Config(
        app,
        http=_HttpProtocol,
        ws=_WebSocketProtocol,
        ws_max_size=MAX_FRAME_BYTES,
        ws_per_message_deflate=False,  # base64 audio hardly compresses; deflate costs more time than it saves
        ssl_certfile=certificate,
        ssl_keyfile=key,
        log_level="warning",
        timeout_graceful_shutdown=5,
        limit_concurrency=_MAX_CONNECTIONS,
        server_header=False,
    )


class DrainingServer(uvicorn.Server):
    """Stops in two steps, with status 0: the first signal drains, a second one, or the end of draining, stops.

    Args:
        drain: ends the conversations; returns whether all ended in time.
    """

    def __init__(self, config: uvicorn.Config, drain: Callable[[], Awaitable[bool]]) -> None:
        super().__init__(config)
        self._drain = drain
        self._draining: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle SIGTERM or SIGINT. uvicorn would raise the signal again in the end, so that the process died of it."""
        if not self.started or self._draining is not None:
            self.force_exit = self.should_exit
            self.should_exit = True
        else:
            self._draining = asyncio.get_running_loop().create_task(self._drain_and_stop())

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


class OwnPort:
    """A replica's application for Ray, which also accepts connections on a port of the loopback interface.

    Those are unknown to Ray. So the application does not end before its conversations have: when Ray ends the replica,
    it admits callers for a while, until the load balancer has noticed, and then nobody.

    Args:
        notice_s: how long the load balancer may take to notice.

    Attributes:
        port: on 127.0.0.1.
    """

    def __init__(self, app: ASGIApp, admission: Admission, notice_s: float) -> None:
        self._app, self._admission, self._notice_s, self._ending = app, admission, notice_s, False
        listener = socket.create_server((_LOOPBACK, 0))
        self.port = int(listener.getsockname()[1])
        config = http_config(self._take_or_refuse)
        config.interface, config.lifespan = "asgi3", "off"  # Ray runs the lifespan
        trusted = os.environ.get("FORWARDED_ALLOW_IPS", "")
        config.forwarded_allow_ips = trusted if trusted == "*" else f"{_LOOPBACK},{trusted}"
        self._server = _Server(config)
        logging.getLogger("uvicorn.error").addFilter(is_not_about_denial)
        self._serving = asyncio.create_task(self._server.serve([listener]))

    @property
    def failed(self) -> bool:
        """Whether connections are no longer accepted."""
        return self._serving.done()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_after_the_last_call() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self._end()
            return message

        await self._app(scope, receive_after_the_last_call if scope["type"] == "lifespan" else receive, send)

    async def _take_or_refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A full replica answers 503 to a load balancer that has others. Whoever comes back to a conversation may come
        back to it here, where it has a slot already; and where all replicas drain, callers are told so."""
        if any(name == _SCHEME for name, _ in scope["headers"]):
            scope["scheme"] = "wss" if scope["type"] == "websocket" else "https"
        no_room = self._ending or (self._admission.full and not self._admission.draining)
        if scope["type"] == "websocket" and no_room and _may_go_elsewhere(scope):
            await receive()
            headers = [(b"retry-after", b"10")]  # for the caller, if all replicas answer like this
            await send({"type": "websocket.http.response.start", "status": 503, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": b""})
        elif scope["type"] == "http" and any(name == _CHECK for name, _ in scope["headers"]):
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
        else:
            await self._app(scope, receive, send)

    async def _end(self) -> None:
        if not self._admission.draining:
            await asyncio.sleep(self._notice_s)
            self._ending = True
            self._admission.drain()
        await self._admission.wait_until_empty()
        self._server.should_exit = True
        await self._serving


def _may_go_elsewhere(scope: Scope) -> bool:
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    comes_back = any(_RESUME in name or _RESUME in value for name, value in headers)
    return not comes_back and any(name == _ELSEWHERE for name, _ in headers)


class _Server(uvicorn.Server):
    """uvicorn in a process whose signals are not its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
