"""Phone calls over websockets: the address that all carriers stream to, and the documents that send them there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from server.phone.dialects import recognised
from server.phone.documents import DOCUMENTS
from server.phone.line import Begin, Line
from server.phone.prompts import Prompts
from server.phone.rules import PARAMETERS, CallRules
from server.phone.trust import Asked, Trust, addresses
from server.phone.wire import Frame
from server.tls import LOCAL_NAMES

_log = logging.getLogger("rejoinder.phone")

_ASTERISKS = "media"
"""The subprotocol that chan_websocket asks for; the others ask for none."""

_BIGGEST_FORM = 64 << 10
"""Bytes of a webhook; carriers send a few hundred."""


@dataclass(frozen=True)
class PhoneSettings:
    """What `rejoinder serve` says about phone calls.

    Attributes:
        public: where carriers find this server, like https://phone.example.org; Host and the request tell when empty.
    """

    rules: CallRules = field(default_factory=CallRules)
    trust: Trust = field(default_factory=Trust)
    public: str = ""


@dataclass
class Switchboard:
    """What all calls share.

    Args:
        begin: opens a conversation.
        calls: connections under way, of calls and of everything else.
        most: more than this at once are turned away.
        same_site: whether a page that opens a stream is our own; carriers are no pages.

    Attributes:
        warned: it was said that calls through a tunnel are anybody's.
    """

    settings: PhoneSettings
    prompts: Prompts
    begin: Begin
    calls: set[object]
    most: int
    same_site: Callable[[WebSocket], bool]
    warned: bool = field(default=False, init=False)

    @property
    def full(self) -> bool:
        """Whether another call would be too much."""
        return len(self.calls) >= self.most


def phone_routes(board: Switchboard) -> list[BaseRoute]:
    """The routes of the phone room."""

    async def stream(socket: WebSocket) -> None:
        await _take_call(socket, board)

    routes: list[BaseRoute] = [WebSocketRoute("/phone", stream), WebSocketRoute("/phone/{ticket}", stream)]
    for name in DOCUMENTS:
        routes.append(Route(f"/phone/{name}", _document(name, board), methods=["GET", "POST"]))
    return routes


async def _take_call(socket: WebSocket, board: Switchboard) -> None:
    who = f"from {socket.client.host if socket.client else 'somewhere'}"
    trust, asked = board.settings.trust, _asked(socket, board, ticket=socket.path_params.get("ticket", ""))
    if not trust.believes(asked) or not (trust.configured or board.same_site(socket)):
        _log.warning("a call %s was refused: it has neither a carrier's signature nor the secret", who)
        await _deny(socket, 403, "this call is not signed")
        return
    if not (trust.configured or board.warned) and socket.url.hostname not in LOCAL_NAMES:
        board.warned = True
        _log.warning(
            "calls come to %s, and nothing tells a carrier's from anybody else's: give the server a token, a key or a "
            "--phone-secret",
            socket.url.hostname,
        )
    if board.full:
        _log.warning("a call %s was refused: %d conversations are under way, the most there may be", who, board.most)
        await _deny(socket, 503, "every line is busy: try again later")
        return
    offered = socket.scope.get("subprotocols", [])
    await socket.accept(subprotocol=_ASTERISKS if _ASTERISKS in offered else None)
    board.calls.add(socket)
    try:
        await Line(_Socket(socket), who, board.settings.rules, board.prompts, board.begin).run(recognised)
    finally:
        board.calls.discard(socket)


async def _deny(socket: WebSocket, status: int, why: str) -> None:
    # A refused call is one line of our log; uvicorn takes an answer to an upgrade for a fault of ours and adds another.
    logging.getLogger("uvicorn.error").addFilter(_not_of_a_denial)
    await socket.send_denial_response(PlainTextResponse(f"{why}\n", status))


def _not_of_a_denial(record: logging.LogRecord) -> bool:
    return record.msg != "ASGI callable returned without completing handshake."


class _Socket:
    """A websocket as a call's wire."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def receive(self) -> Frame | None:
        """See `line.Wire`."""
        try:
            message = await self._socket.receive()
        except RuntimeError:
            return None
        if message["type"] == "websocket.disconnect":
            return None
        text = message.get("text")
        frame: Frame = text if text is not None else message["bytes"]
        return frame

    async def send(self, frame: Frame) -> None:
        """See `line.Wire`."""
        try:
            await (self._socket.send_text(frame) if isinstance(frame, str) else self._socket.send_bytes(frame))
        except (RuntimeError, WebSocketDisconnect) as error:
            raise ConnectionError("the carrier is gone") from error

    async def close(self, code: int, reason: str) -> None:
        """See `line.Wire`. A close frame holds 123 bytes of reason."""
        try:
            await asyncio.wait_for(self._socket.close(code, reason.encode()[:120].decode("utf-8", "ignore")), 1)
        except (TimeoutError, RuntimeError, WebSocketDisconnect, OSError):
            return  # gone already


def _document(name: str, board: Switchboard) -> Callable[[Request], Any]:
    media_type, document = DOCUMENTS[name]

    async def answer(request: Request) -> Response:
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > _BIGGEST_FORM:
                return PlainTextResponse("this is no webhook of a phone call\n", 413)
        form: dict[str, str] = {}
        if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        asked = _asked(request, board, form=form, body=body)
        if not board.settings.trust.believes(asked):
            _log.warning("a webhook for %s was refused: it has neither a signature nor the secret", name)
            return PlainTextResponse("this request is not signed\n", 403)
        given = {key: value for key, value in request.query_params.items() if key in PARAMETERS}
        for key in ("From", "To"):
            if value := form.get(key) or request.query_params.get(key):
                given[key.lower()] = value
        return Response(document(_stream_url(request, board), given), media_type=media_type)

    return answer


def _stream_url(request: Request, board: Switchboard) -> str:
    """Where the call is to be streamed to; its last part lets it in."""
    settings = board.settings
    host = urlsplit(settings.public).netloc or request.headers.get("host", "localhost")
    told = urlsplit(settings.public).scheme or request.headers.get("x-forwarded-proto", request.url.scheme)
    ticket = f"/{settings.trust.ticket()}" if settings.trust.configured else ""
    return f"{'wss' if told in ('https', 'wss') else 'ws'}://{host}/phone{ticket}"


def _asked(
    request: HTTPConnection,
    board: Switchboard,
    *,
    form: dict[str, str] | None = None,
    body: bytes = b"",
    ticket: str = "",
) -> Asked:
    path = request.scope.get("raw_path", request.url.path.encode()).decode("ascii", "replace").partition("?")[0]
    where = addresses(
        request.url.scheme, request.headers.get("host", ""), path, request.url.query, board.settings.public
    )
    headers = {name.lower(): value for name, value in request.headers.items()}
    method = str(request.scope.get("method", "GET"))
    return Asked(method, where, headers, dict(request.query_params), form or {}, body, ticket)
