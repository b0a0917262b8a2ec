"""The ASGI application: all routes on one port, in one process."""

from __future__ import annotations

import resource
import socket as sockets
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from importlib.resources import files

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from server.chat_completions.routes import completion_routes
from server.context import ServerContext
from server.realtime.client_secrets import ClientSecrets, create_client_secret
from server.realtime.websocket import serve_realtime
from server.telephony.audiosocket_server import audiosocket_server
from server.telephony.routes import Telephony, TelephonySettings, telephony_routes
from server.tools.server_tools import ServerTools
from server.tools.tool_selection import SelectingLanguageModel
from voice.instructions import INSTRUCTIONS
from voice.language_model import Message

_SECURITY_HEADERS = [
    (b"content-security-policy", b"default-src 'self'; connect-src 'self' ws: wss:; img-src 'self' data:"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
]


def build_app(
    context: ServerContext,
    telephony_settings: TelephonySettings | None = None,
    audiosocket: sockets.socket | None = None,
) -> ASGIApp:
    """Build the ASGI application.

    Args:
        context: what all routes share.
        telephony_settings: settings of phone calls; the defaults if None.
        audiosocket: a bound socket for AudioSocket calls, or None.
    """

    async def healthz(request: Request) -> Response:
        status = {
            "status": "ok",
            "version": version("rejoinder"),
            "model": context.model,
            "voice": context.speech_models.voices.default.name,
            "voices": context.speech_models.voices.names,
            "conversations": len(context.connections),
            "peak_memory_mb": _peak_memory_mb(),
        }
        return JSONResponse(status)

    client_secrets = ClientSecrets()

    async def realtime(socket: WebSocket) -> None:
        await serve_realtime(socket, context, client_secrets)

    async def new_client_secret(request: Request) -> Response:
        return await create_client_secret(request, context, client_secrets)

    telephony = Telephony(context, telephony_settings or TelephonySettings())

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if context.tools is not None:
                await stack.enter_async_context(context.tools.running())
                read_ahead(context, context.tools)
            if audiosocket is not None:
                await stack.enter_async_context(audiosocket_server(audiosocket, telephony))
            yield

    return Starlette(
        lifespan=lifespan,
        routes=[
            Route("/healthz", healthz),
            WebSocketRoute("/v1/realtime", realtime),
            Route("/v1/realtime/client_secrets", new_client_secret, methods=["POST"]),
            *completion_routes(context),
            *telephony_routes(telephony),
            Mount("/", StaticFiles(directory=str(files("web")), html=True)),
        ],
        middleware=[Middleware(_SecurityHeaders)],
    )


def read_ahead(context: ServerContext, tools: ServerTools) -> None:
    """Read the default instructions and the tools, whose text all conversations share, before anybody connects."""
    messages = [Message("system", INSTRUCTIONS)]
    declarations = [tool.declaration for tool in tools.registry]
    SelectingLanguageModel(context.new_language_model()).prepare(messages, tools=declarations)


def _peak_memory_mb() -> int:
    """Peak resident memory of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (1 << 20) if sys.platform == "darwin" else peak // (1 << 10)  # bytes on macOS, kilobytes elsewhere


class _SecurityHeaders:
    """Adds the page's security headers to every HTTP response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *_SECURITY_HEADERS]}  # type: ignore[misc]
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)  # type: ignore[arg-type]
