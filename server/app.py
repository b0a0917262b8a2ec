"""The server: routes, and who may come in. One process, one port, every conversation on it."""

from __future__ import annotations

import asyncio
import hmac
import logging
import resource
import socket as sockets
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.resources import files
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from model.engine import Engine
from server import protocol
from server.phone.prompts import Prompts
from server.phone.routes import PhoneSettings, Switchboard, phone_routes
from server.phone.tcp import audiosocket_server
from server.protocol import ErrorDetail, ServerEvent
from server.realtime import RealtimeConversation
from server.timelines import TurnRecord
from server.tls import LOCAL_NAMES
from voice.stages import Stages

_log = logging.getLogger("rejoinder.server")

_UNREAD_EVENTS = 4096
"""Events that wait for a client that does not read, before it is disconnected: some minutes of audio, 30 MB."""

_KEY_PROTOCOL = "openai-insecure-api-key."
"""Browsers cannot set headers on a websocket; the Realtime protocol passes the key as a subprotocol instead."""

_SECURITY_HEADERS = [
    (b"content-security-policy", b"default-src 'self'; connect-src 'self' ws: wss:; img-src 'self' data:"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
]


@dataclass
class ServerState:
    """What all connections share.

    Attributes:
        model: name of the language model.
        api_keys: keys that let a client in; empty lets everyone in.
        origins: pages elsewhere that may connect, besides our own.
        most_conversations: more than this at once are turned away.
        local: whether the server listens on this machine only.
        keep: called with every answered turn; nothing is kept when None.
        phone: how phone calls are held, and who may call.
        audiosocket: a bound socket for AudioSocket calls, or None.
    """

    engine: Engine
    stages: Stages
    model: str
    api_keys: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    most_conversations: int = 16
    local: bool = False
    keep: Callable[[TurnRecord], None] | None = None
    phone: PhoneSettings = field(default_factory=PhoneSettings)
    audiosocket: sockets.socket | None = None
    connections: set[object] = field(default_factory=set)

    def conversation(self, send: Callable[[ServerEvent], None]) -> RealtimeConversation:
        """A new conversation that sends its events to `send`."""
        return RealtimeConversation(self.engine.conversation(), self.stages, self.model, send, self.keep)


def build_app(state: ServerState) -> ASGIApp:
    """The ASGI application."""

    async def healthz(request: Request) -> Response:
        said = {
            "status": "ok",
            "version": version("rejoinder"),
            "model": state.model,
            "voice": state.stages.voice.name,
            "conversations": len(state.connections),
            "peak_memory_mb": _peak_memory_mb(),
        }
        return JSONResponse(said)

    async def realtime(socket: WebSocket) -> None:
        await _serve_realtime(socket, state)

    board = Switchboard(
        state.phone,
        Prompts(state.stages),
        state.conversation,
        state.connections,
        state.most_conversations,
        lambda socket: _same_site(socket, state),
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        if state.audiosocket is None:
            yield
            return
        async with audiosocket_server(state.audiosocket, board):
            yield

    return Starlette(
        lifespan=lifespan,
        routes=[
            Route("/healthz", healthz),
            WebSocketRoute("/v1/realtime", realtime),
            *phone_routes(board),
            Mount("/", StaticFiles(directory=str(files("web")), html=True)),
        ],
        middleware=[Middleware(_PageHeaders)],
    )


def _peak_memory_mb() -> int:
    """The most memory that this process has held, resident."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (1 << 20) if sys.platform == "darwin" else peak // (1 << 10)  # bytes there, kilobytes elsewhere


class _PageHeaders:
    """Puts the page's security headers on every HTTP response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *_SECURITY_HEADERS]}  # type: ignore[misc]
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)  # type: ignore[arg-type]


async def _serve_realtime(socket: WebSocket, state: ServerState) -> None:
    offered = socket.scope.get("subprotocols", [])
    turned_away = _why_not(socket, offered, state)
    if turned_away is not None:
        _log.info("a client at %s was turned away: %s", socket.client, turned_away.message)
    await socket.accept(subprotocol="realtime" if "realtime" in offered else None)
    if turned_away is not None:
        await socket.send_text(protocol.error(turned_away).model_dump_json())
        await socket.close(1013 if turned_away.code == "too_many_conversations" else 1008, turned_away.code)
        return
    state.connections.add(socket)
    waiting: asyncio.Queue[ServerEvent] = asyncio.Queue(_UNREAD_EVENTS)
    stalled = asyncio.Event()

    def send(event: ServerEvent) -> None:
        try:
            waiting.put_nowait(event)
        except asyncio.QueueFull:
            stalled.set()

    conversation = state.conversation(send)
    tasks = [
        asyncio.create_task(_read(socket, conversation)),
        asyncio.create_task(_write(socket, waiting)),
        asyncio.create_task(stalled.wait()),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if stalled.is_set():
            _log.warning("the client at %s does not read: disconnected", socket.client)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await conversation.close()
        state.connections.discard(socket)
        await _close(socket, 1013 if stalled.is_set() else 1000)


async def _read(socket: WebSocket, conversation: RealtimeConversation) -> None:
    try:
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            # The protocol has text frames only; what is in a binary one is said to be wrong, not dropped.
            await conversation.receive(text if text is not None else message["bytes"].decode("utf-8", "replace"))
    except (WebSocketDisconnect, RuntimeError):
        return


async def _write(socket: WebSocket, waiting: asyncio.Queue[ServerEvent]) -> None:
    try:
        while True:
            await socket.send_text((await waiting.get()).model_dump_json())
    except (WebSocketDisconnect, RuntimeError, OSError):
        return


async def _close(socket: WebSocket, code: int) -> None:
    try:
        await asyncio.wait_for(socket.close(code), timeout=1)
    except (TimeoutError, RuntimeError, WebSocketDisconnect, OSError):
        return  # gone already


def _why_not(socket: WebSocket, offered: list[str], state: ServerState) -> ErrorDetail | None:
    """Why a client may not come in, or None."""
    if not _same_site(socket, state):
        message = (
            f"pages from {socket.headers.get('origin')} may not connect: start the server with --allow-origin for it"
        )
        return ErrorDetail(code="origin_not_allowed", message=message)
    if state.api_keys and not _has_key(socket, offered, state):
        message = "this server wants an API key: send it as `Authorization: Bearer KEY`"
        return ErrorDetail(code="invalid_api_key", message=message)
    if len(state.connections) >= state.most_conversations:
        message = f"{state.most_conversations} conversations are under way, the most this server takes: try again later"
        return ErrorDetail(type="server_error", code="too_many_conversations", message=message)
    return None


def _same_site(socket: WebSocket, state: ServerState) -> bool:
    """Browsers say which page opens a websocket; other pages must not talk through a visitor's browser."""
    origin = socket.headers.get("origin")
    if origin is None or origin in state.origins or "*" in state.origins:
        return True
    page = urlsplit(origin)
    if state.local and page.hostname not in LOCAL_NAMES:
        return False  # a name that somebody else's DNS points at this machine
    return page.netloc == socket.headers.get("host")


def _has_key(socket: WebSocket, offered: list[str], state: ServerState) -> bool:
    given = [p.removeprefix(_KEY_PROTOCOL) for p in offered if p.startswith(_KEY_PROTOCOL)]
    scheme, _, token = socket.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        given.append(token.strip())
    return any(hmac.compare_digest(one.encode(), key.encode()) for one in given for key in state.api_keys)
