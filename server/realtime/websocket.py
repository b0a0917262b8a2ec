"""The Realtime endpoint: a websocket that carries a `RealtimeConversation`."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import Literal

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from agent.background_tasks import cancel
from server.access.admission import Dismissal, Refused
from server.access.rate import TokenBucket
from server.access.usage import current_meter, key_name
from server.auth import offered_keys
from server.budgets import OUTBOX
from server.context import AccessDenied, ServerContext
from server.realtime import events as protocol
from server.realtime.client_secrets import ClientSecrets
from server.realtime.conversation import RealtimeConversation
from server.realtime.resumable_session import Outbox, ResumableSession
from server.realtime.resumptions import Resumptions, new_token

_log = logging.getLogger("rejoinder.server")

_EVENTS_PER_SECOND, _EVENT_BURST = 500.0, 2000.0
"""Client events that are read. A client that streams audio sends 10 to 50 a second; one that sends more is read more
slowly, which its own send buffer then feels."""

_BYTES_PER_SECOND, _BYTE_BURST = float(2 << 20), float(8 << 20)
"""Bytes of client events that are read: 24 kHz audio 30 times as fast as it is spoken, and two minutes of it at once.
An event that changes the configuration costs the size of the whole, because all of that is copied and checked, and one
that retrieves an item costs the size of the item."""

_MAX_FINISH_S = 15.0
"""How long a conversation that is to end may finish its turn."""

_MAX_FLUSH_S = 2.0
"""How long the last events may take to be sent."""

RESUME_HEADER = "rejoinder-resume"
_RESUME_SUBPROTOCOL = f"{RESUME_HEADER}."
"""How a client that comes back shows its token: browsers can set no header on a websocket. Never in the URL, which
proxies write to their logs."""

WAITING_SUBPROTOCOL = "rejoinder-waiting"
"""Offered by clients that want to be told that they wait for a slot. Others know no event before `session.created`."""

_NORMAL, _GOING_AWAY, _POLICY_VIOLATION, _SERVICE_RESTART, _TRY_AGAIN_LATER = 1000, 1001, 1008, 1012, 1013
"""WebSocket close codes: RFC 6455, and 1012 and 1013 from the IANA registry."""

_CLOSE_CODES = {
    "origin_not_allowed": _POLICY_VIOLATION,
    "api_key_required": _POLICY_VIOLATION,
    "invalid_api_key": _POLICY_VIOLATION,
    "key_revoked": _POLICY_VIOLATION,
    "quota_exceeded": _POLICY_VIOLATION,
    "session_expired": _GOING_AWAY,
    "idle_timeout": _GOING_AWAY,
    "server_shutting_down": _SERVICE_RESTART,
}
"""By error code. All others mean that the client may try again later."""


_Outcome = Literal["ended", "dropped", "displaced"]
"""How a connection ended: with its conversation, without it, or because the client has come back on another one."""


async def serve_realtime(
    socket: WebSocket, context: ServerContext, client_secrets: ClientSecrets, resumptions: Resumptions
) -> None:
    """Hold one conversation with a client until either side closes the connection."""
    try:
        session, resumed = await _open_session(socket, context, client_secrets, resumptions)
    except (AccessDenied, Refused) as refusal:
        _log.info("rejected the client at %s: %s", socket.client, refusal.message)
        await _accept(socket)
        await _send_last_event(socket, refusal)
        return
    outcome: _Outcome = "ended"
    try:
        await _accept(socket)
        if resumed:
            session.conversation.resumed(session.token)
        outcome = await _Connection(socket, session, context).run()
    finally:
        if outcome == "dropped":
            await resumptions.park(session)
        elif outcome == "ended":
            await resumptions.end(session)


async def _accept(socket: WebSocket) -> None:
    """Accept the connection, unless that has been done."""
    if socket.application_state is WebSocketState.CONNECTING:
        offered = socket.scope.get("subprotocols", [])
        with suppress(WebSocketDisconnect, RuntimeError):
            await socket.accept(subprotocol="realtime" if "realtime" in offered else None)


async def _tell_to_wait(socket: WebSocket) -> None:
    """Say that all slots are taken, and that one is waited for, to a client that understands it."""
    if WAITING_SUBPROTOCOL in socket.scope.get("subprotocols", []):
        await _accept(socket)
        with suppress(WebSocketDisconnect, RuntimeError, OSError):
            await socket.send_text(protocol.server_event("rejoinder.waiting").model_dump_json())


async def _open_session(
    socket: WebSocket, context: ServerContext, client_secrets: ClientSecrets, resumptions: Resumptions
) -> tuple[ResumableSession, bool]:
    """The session of a client, and whether it has come back to it. Raises AccessDenied, Refused."""
    secret = await client_secrets.find(offered_keys(socket))
    if secret is not None:
        context.check_origin(socket)
        key = secret.key and context.admission.keys.current(secret.key)
        if key is None and secret.key is not None:
            raise AccessDenied(401, "invalid_api_key", "the API key that made this client secret was revoked")
    else:
        key = context.authenticate(socket)
    token, on_wait = _resume_token(socket), partial(_tell_to_wait, socket)
    name = key_name(key)
    if token and (session := await resumptions.take(token, name, on_wait)) is not None:
        return session, True
    record = await resumptions.take_record(token, name) if token else None
    try:
        slot = await context.admission.admit("realtime", key, continued=record is not None, on_wait=on_wait)
    except Refused:
        if record is not None:
            await resumptions.give_back(token, record)
        raise
    if "origin" in socket.headers:  # browsers send it
        slot.channel = "web"
    current_meter.set(slot.meter)
    try:
        outbox = Outbox()
        outbox.attach()
        config = record.config if record is not None else secret.config if secret is not None else None
        token = new_token()
        conversation = RealtimeConversation(context, slot, outbox, config, resume_token=token, restored=record)
    except BaseException:
        slot.release()
        raise
    session = ResumableSession(conversation, outbox, slot, token)
    resumptions.add(session)
    return session, record is not None


def _resume_token(socket: WebSocket) -> str:
    """The token that a client shows to come back; empty if none."""
    offered = [*socket.scope.get("subprotocols", [])]
    tokens = [name.removeprefix(_RESUME_SUBPROTOCOL) for name in offered if name.startswith(_RESUME_SUBPROTOCOL)]
    return tokens[0] if tokens else socket.headers.get(RESUME_HEADER, "")


class _Connection:
    """One connection of a session."""

    def __init__(self, socket: WebSocket, session: ResumableSession, context: ServerContext) -> None:
        self._socket, self._session, self._limits = socket, session, context.session_limits
        self._clock = asyncio.get_running_loop().time
        self._last_event_at = self._clock()
        self._disconnect_code: int | None = None

    async def run(self) -> _Outcome:
        """Carry events until either side closes the connection."""
        session, outbox, displaced = self._session, self._session.outbox, self._session.displaced
        coroutines = (self._read(), self._write(), self._wait_for_dismissal(), outbox.stalled.wait(), displaced.wait())
        tasks: list[asyncio.Task[object]] = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
        code = _NORMAL
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if outbox.stalled.is_set():
                _log.warning("disconnected the client at %s: it does not read its events", self._socket.client)
                code = _TRY_AGAIN_LATER
        finally:
            await cancel(tasks)
        if displaced.is_set():
            session.detach()
            await _close(self._socket, _GOING_AWAY, "the client has come back on another connection")
            return "displaced"
        dismissal = session.slot.dismissal
        if dismissal is not None and self._disconnect_code is None:
            await self._flush()
            await _send_last_event(self._socket, dismissal)
            return "ended"
        await _close(self._socket, code)
        left = self._disconnect_code in (_NORMAL, _GOING_AWAY)
        return "dropped" if dismissal is None and not left and session.conversation.resumable else "ended"

    async def _read(self) -> None:
        """Pass the client's events to the conversation, not faster than the limit."""
        events = TokenBucket(_EVENTS_PER_SECOND, _EVENT_BURST, self._clock)
        read = TokenBucket(_BYTES_PER_SECOND, _BYTE_BURST, self._clock)
        conversation, copied = self._session.conversation, self._session.conversation.copied_bytes
        try:
            while True:
                message = await self._socket.receive()
                if message["type"] == "websocket.disconnect":
                    self._disconnect_code = int(message.get("code") or 1006)
                    return
                text = message.get("text")
                # The protocol uses text frames only. A binary frame produces an `error` event instead of being ignored.
                text = text if text is not None else message["bytes"].decode("utf-8", "replace")
                cost = len(text) + conversation.copied_bytes - copied
                copied = conversation.copied_bytes
                if (wait_s := max(events.take(), read.take(cost))) > 0:
                    await asyncio.sleep(wait_s)
                self._last_event_at = self._clock()
                await conversation.receive(text)
        except (WebSocketDisconnect, RuntimeError):
            self._disconnect_code = self._disconnect_code or 1006

    async def _write(self) -> None:
        outbox = self._session.outbox
        try:
            while True:
                event = await outbox.next()
                try:
                    async with asyncio.timeout(OUTBOX.seconds):
                        await self._socket.send_text(event)
                except TimeoutError:
                    outbox.stalled.set()
                    return
                await asyncio.sleep(0)  # lets the event loop detect a lost connection before the next write
        except (WebSocketDisconnect, RuntimeError, OSError):
            self._disconnect_code = self._disconnect_code or 1006

    async def _flush(self) -> None:
        """Send the events that are queued."""
        with suppress(WebSocketDisconnect, RuntimeError, OSError, TimeoutError):
            async with asyncio.timeout(_MAX_FLUSH_S):
                while self._session.outbox.queued:
                    await self._socket.send_text(await self._session.outbox.next())

    async def _wait_for_dismissal(self) -> None:
        """Ends when the conversation is to end: somebody dismissed it, or it reached a limit."""
        slot, conversation, limits = self._session.slot, self._session.conversation, self._limits
        expires_at = self._clock() + limits.max_duration_s - slot.age_s
        while slot.dismissal is None:
            idle_at = self._last_event_at + limits.idle_s
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(expires_at, idle_at)):
                    await slot.dismissed.wait()
            now = self._clock()
            if now >= expires_at:
                message = f"the session has reached its limit of {limits.max_duration_s / 60:g} minutes"
                slot.dismiss(Dismissal("session_expired", message))
            elif now >= self._last_event_at + limits.idle_s:
                message = f"the client has sent nothing for {limits.idle_s / 60:g} minutes"
                slot.dismiss(Dismissal("idle_timeout", message, after_turn=False))
        if slot.dismissal is not None and slot.dismissal.after_turn:
            with suppress(TimeoutError):
                async with asyncio.timeout(_MAX_FINISH_S):
                    await conversation.wait_until_idle()


async def _send_last_event(socket: WebSocket, reason: AccessDenied | Refused | Dismissal) -> None:
    """Send why the connection ends as an error, and close it."""
    kind: Literal["invalid_request_error", "server_error"]
    kind = "invalid_request_error" if isinstance(reason, AccessDenied) else "server_error"
    event = protocol.error_event(reason.message, reason.code, type=kind)
    with suppress(TimeoutError, RuntimeError, WebSocketDisconnect, OSError):
        await asyncio.wait_for(socket.send_text(event.model_dump_json()), _MAX_FLUSH_S)
    await _close(socket, _CLOSE_CODES.get(reason.code, _TRY_AGAIN_LATER), reason.code)


async def _close(socket: WebSocket, code: int, reason: str = "") -> None:
    try:
        await asyncio.wait_for(socket.close(code, reason), timeout=1)
    except (TimeoutError, RuntimeError, WebSocketDisconnect, OSError):
        return  # already closed
