"""Phone calls over websockets: the URL that all carriers stream to, and the webhooks that send them there."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from server.access.admission import Refused, Slot
from server.access.keys import ApiKey
from server.access.usage import current_meter, key_name
from server.auth import client_address
from server.budgets import WEBHOOK
from server.context import ServerContext
from server.realtime.conversation import RealtimeConversation
from server.realtime.events import ServerEvent
from server.realtime.session_record import SessionRecord
from server.request_body import limited
from server.telephony.announcements import Announcements
from server.telephony.auth import (
    TICKET_LIFETIME_S,
    CarrierAuth,
    CarrierRequest,
    Ticket,
    candidate_urls,
    offered_secrets,
)
from server.telephony.carriers.detection import detect_carrier
from server.telephony.connection import AdmittedCall, Connection, Transport
from server.telephony.continued_calls import CALL_PARAMETER, ContinuedCalls
from server.telephony.dialect import Frame, parse_count
from server.telephony.settings import PARAMETERS, CallSettings
from server.telephony.webhooks import DOCUMENTS, FOLLOW_REDIRECTS, HANG_UP

_log = logging.getLogger("rejoinder.phone")

_ASTERISK_SUBPROTOCOL = "media"
"""The subprotocol that chan_websocket requests; other carriers request none."""

_MAX_REFUSED_CALLS = 8
"""Callers who are told at the same time that every line is busy. Further ones get an HTTP status."""

_CONTINUED = "rejoinder_continued"
"""The parameter of a webhook that a carrier sends after a stream has ended: the call, a dash, and how often so far."""

_MAX_CONTINUATIONS = 5
"""Replicas that may die under one call."""

_NUMBERS = {"from": ("From", "from", "CallFrom"), "to": ("To", "to", "CallTo")}
"""The stream's parameters for who calls whom, and the fields of webhooks that say so: Twilio's, which Telnyx and Plivo
share, Vonage's and Exotel's."""


@dataclass(frozen=True)
class TelephonySettings:
    """Settings of `rejoinder serve` for phone calls.

    Attributes:
        call_settings: of every call.
        carrier_auth: which calls are accepted.
        public_url: where carriers reach this server, like https://phone.example.org. If empty, the Host header and the
            request's scheme are used.
    """

    call_settings: CallSettings = field(default_factory=CallSettings)
    carrier_auth: CarrierAuth = field(default_factory=CarrierAuth)
    public_url: str = ""


class Telephony:
    """What all calls share.

    Args:
        context: the models, the limits and the open connections.
        settings: of calls, and which calls are accepted.
    """

    def __init__(self, context: ServerContext, settings: TelephonySettings) -> None:
        self.context, self.settings = context, settings
        self.announcements = Announcements(context.speech_models)
        self.continued = ContinuedCalls(context.records)
        self._being_refused = 0
        self._used_tickets: dict[str, float] = {}

    @property
    def authenticated(self) -> bool:
        """Whether any request can be refused."""
        return self.settings.carrier_auth.configured or self.context.admission.keys.required

    def find_key(self, request: CarrierRequest) -> ApiKey | None:
        """The API key that a request carries as its secret."""
        return self.context.admission.keys.find(offered_secrets(request))

    def accepts(self, request: CarrierRequest, connection: HTTPConnection) -> bool:
        """Whether a request has a carrier's signature, the secret or an API key; or needs none, because the server has
        none of these and the call comes from this machine."""
        if not self.authenticated:
            return self.context.admits(connection)
        carrier_auth, key, address = self.settings.carrier_auth, self.find_key(request), client_address(connection)
        wrong_secrets = self.context.wrong_secrets
        if key is not None and not self.context.admission.keys.is_chosen(key):
            return True
        if wrong_secrets.pausing(address):
            return carrier_auth.signed(request)
        accepted = key is not None or carrier_auth.accepts(request)
        if not accepted and offered_secrets(request):
            wrong_secrets.add(address)
        return accepted

    async def redeem(self, text: str) -> Ticket | None:
        """The ticket that a stream shows. None if this is no valid ticket, or it has been used here or on another
        replica."""
        ticket, now = self.settings.carrier_auth.read_ticket(text), time.monotonic()
        self._used_tickets = {used: at for used, at in self._used_tickets.items() if now < at + 2 * TICKET_LIFETIME_S}
        if ticket is None or ticket.id in self._used_tickets:
            return None
        self._used_tickets[ticket.id] = now
        key, seconds = f"ticket/{ticket.id}", 2 * TICKET_LIFETIME_S
        first = await self.context.records.call(
            lambda store: store.put(key, b"used", seconds) and store.take(key, seconds) is not None
        )
        return None if first is False else ticket

    @asynccontextmanager
    async def line(
        self, name: str, key: ApiKey | None = None, caller: str | None = None
    ) -> AsyncIterator[AdmittedCall | None]:
        """A line for a call: None if none is free, and the caller is to be told so.

        Args:
            caller: who calls, if the webhook has said so already.

        Raises:
            Refused: no line is free, and too many callers are being told so already.
        """
        try:
            slot = await self.context.admission.admit("phone", key)
        except Refused as refusal:
            _log.warning("a call %s was refused: %s", name, refusal.message)
            if self._being_refused >= _MAX_REFUSED_CALLS:
                raise
            self._being_refused += 1
            try:
                yield None
            finally:
                self._being_refused -= 1
            return
        current_meter.set(slot.meter)
        try:
            yield AdmittedCall(slot, partial(self._open_conversation, slot), self.continued, caller)
        finally:
            slot.release()

    def connection(self, transport: Transport, name: str, admitted: AdmittedCall | None) -> Connection:
        """A call's connection."""
        return Connection(transport, name, self.settings.call_settings, self.announcements, admitted)

    def _open_conversation(
        self, slot: Slot, send: Callable[[ServerEvent], None], restored: SessionRecord | None
    ) -> RealtimeConversation:
        conversation = RealtimeConversation(self.context, slot, send, restored=restored)
        if conversation.tools is not None and restored is None:
            conversation.tools.open_call(conversation.session.open_with)
        return conversation


def telephony_routes(telephony: Telephony) -> list[BaseRoute]:
    """The routes of phone calls."""

    async def stream(socket: WebSocket) -> None:
        await _accept_call(socket, telephony)

    routes: list[BaseRoute] = [WebSocketRoute("/phone", stream), WebSocketRoute("/phone/{ticket}", stream)]
    for name in DOCUMENTS:
        routes.append(Route(f"/phone/{name}", _webhook(name, telephony), methods=["GET", "POST"]))
    return routes


async def _accept_call(socket: WebSocket, telephony: Telephony) -> None:
    name = f"from {socket.client.host if socket.client else 'an unknown address'}"
    request = _carrier_request(socket, telephony, ticket=socket.path_params.get("ticket", ""))
    ticket, caller, keys = await telephony.redeem(request.ticket), None, telephony.context.admission.keys
    if ticket is None:
        accepted, key = telephony.accepts(request, socket), telephony.find_key(request)
    else:
        caller, key = ticket.caller, keys.current(ApiKey(ticket.key)) if ticket.key else None
        accepted = key is not None or not ticket.key  # the key may have been revoked
    if not accepted:
        _log.warning("a call %s was refused: it has neither a carrier's signature nor the secret", name)
        await _deny(socket, 403, "this call is not signed")
        return
    offered = socket.scope.get("subprotocols", [])
    try:
        async with telephony.line(name, key, caller) as admitted:
            await socket.accept(subprotocol=_ASTERISK_SUBPROTOCOL if _ASTERISK_SUBPROTOCOL in offered else None)
            await telephony.connection(_WebSocketTransport(socket), name, admitted).run(detect_carrier)
    except Refused as refusal:
        await _deny(socket, 503, "every line is busy: try again later", refusal.retry_after_s)


async def _deny(socket: WebSocket, status: int, reason: str, retry_after_s: int | None = None) -> None:
    # We log a refused call in one line.
    logging.getLogger("uvicorn.error").addFilter(is_not_about_denial)
    headers = {} if retry_after_s is None else {"retry-after": str(retry_after_s)}
    await socket.send_denial_response(PlainTextResponse(f"{reason}\n", status, headers))


def is_not_about_denial(record: logging.LogRecord) -> bool:
    """Filters out a message of uvicorn, which takes a response to an upgrade for an error."""
    return record.msg != "ASGI callable returned without completing handshake."


class _WebSocketTransport:
    """A websocket as a `connection.Transport`."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def receive(self) -> Frame | None:
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
        try:
            await (self._socket.send_text(frame) if isinstance(frame, str) else self._socket.send_bytes(frame))
        except (RuntimeError, WebSocketDisconnect) as error:
            raise ConnectionError("the carrier disconnected") from error

    async def close(self, code: int, reason: str) -> None:
        """A close frame holds 123 bytes of reason."""
        try:
            await asyncio.wait_for(self._socket.close(code, reason.encode()[:120].decode("utf-8", "ignore")), 1)
        except (TimeoutError, RuntimeError, WebSocketDisconnect, OSError):
            return  # already disconnected


def _webhook(name: str, telephony: Telephony) -> Callable[[Request], Any]:
    media_type, build_document = DOCUMENTS[name]

    async def respond(request: Request) -> Response:
        with limited(request, WEBHOOK) as counted:
            body = await counted.body()
        form: dict[str, str] = {}
        if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        asked = _carrier_request(request, telephony, form=form, body=body)
        if not telephony.accepts(asked, request):
            _log.warning("a webhook for %s was refused: it has neither a signature nor the secret", name)
            return PlainTextResponse("this request is not signed\n", 403)
        parameters = {key: value for key, value in request.query_params.items() if key in PARAMETERS}
        for key, fields in _NUMBERS.items():
            found = (form.get(field) or request.query_params.get(field) for field in fields)
            if value := next(filter(None, found), None):
                parameters[key] = value
        then = ""
        if telephony.continued.possible and name in FOLLOW_REDIRECTS:
            call, attempt = _continued_call(request)
            if attempt and (attempt > _MAX_CONTINUATIONS or not await telephony.continued.may_continue(call)):
                return Response(HANG_UP, media_type=media_type)
            parameters[CALL_PARAMETER] = call
            then = _continuation_url(request, telephony, call, attempt + 1)
        url = _stream_url(request, telephony, parameters.get("from", ""), key_name(telephony.find_key(asked)))
        return Response(build_document(url, parameters, then), media_type=media_type)

    return respond


def _continued_call(request: Request) -> tuple[str, int]:
    """The call that a webhook is about, and how often its replica has died; a new call if it never did."""
    call, _, number = request.query_params.get(_CONTINUED, "").partition("-")
    attempt = parse_count(number)
    return (call, attempt) if call and attempt is not None else (ContinuedCalls.new_id(), 0)


def _continuation_url(request: Request, telephony: Telephony, call: str, attempt: int) -> str:
    """Where the carrier should ask what to do when the stream has ended: here, with the same parameters."""
    secure, host = _origin(request, telephony)
    query = [(name, value) for name, value in request.query_params.multi_items() if name != _CONTINUED]
    query.append((_CONTINUED, f"{call}-{attempt}"))
    return f"{'https' if secure else 'http'}://{host}{request.url.path}?{urlencode(query)}"


def _stream_url(request: Request, telephony: Telephony, caller: str, key: str) -> str:
    """Where the carrier should stream the call. The last path segment is a ticket that authorizes the stream."""
    secure, host = _origin(request, telephony)
    ticket = f"/{telephony.settings.carrier_auth.issue_ticket(caller, key)}" if telephony.authenticated else ""
    return f"{'wss' if secure else 'ws'}://{host}/phone{ticket}"


def _origin(request: Request, telephony: Telephony) -> tuple[bool, str]:
    """How carriers reach this server: whether by TLS, and at which host."""
    public_url = urlsplit(telephony.settings.public_url)
    scheme = public_url.scheme or request.headers.get("x-forwarded-proto", request.url.scheme)
    return scheme in ("https", "wss"), public_url.netloc or request.headers.get("host", "localhost")


def _carrier_request(
    request: HTTPConnection,
    telephony: Telephony,
    *,
    form: dict[str, str] | None = None,
    body: bytes = b"",
    ticket: str = "",
) -> CarrierRequest:
    path = request.scope.get("raw_path", request.url.path.encode()).decode("ascii", "replace").partition("?")[0]
    urls = candidate_urls(
        request.url.scheme, request.headers.get("host", ""), path, request.url.query, telephony.settings.public_url
    )
    headers = {name.lower(): value for name, value in request.headers.items()}
    method = str(request.scope.get("method", "GET"))
    return CarrierRequest(method, urls, headers, dict(request.query_params), form or {}, body, ticket)
