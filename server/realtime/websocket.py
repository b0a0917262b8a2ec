"""The Realtime endpoint: a websocket that carries a `RealtimeConversation`."""

from __future__ import annotations

import asyncio
import logging

from starlette.websockets import WebSocket, WebSocketDisconnect

from server.auth import has_api_key, is_same_site, offered_keys
from server.context import ServerContext
from server.realtime import events as protocol
from server.realtime.beta import is_beta
from server.realtime.client_secrets import ClientSecrets
from server.realtime.conversation import RealtimeConversation, open_conversation
from server.realtime.events import ErrorDetail, ServerEvent
from server.tools.user_data import owner_id

_log = logging.getLogger("rejoinder.server")

_MAX_QUEUED_EVENTS = 4096
"""Events that may wait for a client that does not read before it is disconnected: several minutes of audio, 30 MB."""

_POLICY_VIOLATION, _TRY_AGAIN_LATER = 1008, 1013
"""WebSocket close codes: RFC 6455, and 1013 from the IANA registry."""


async def serve_realtime(socket: WebSocket, context: ServerContext, client_secrets: ClientSecrets) -> None:
    """Hold one conversation with a client until either side closes the connection."""
    offered = socket.scope.get("subprotocols", [])
    secrets = [secret for key in offered_keys(socket) if (secret := client_secrets.find(key)) is not None]
    refusal = _refusal(socket, context, has_secret=bool(secrets))
    if refusal is not None:
        _log.info("rejected the client at %s: %s", socket.client, refusal.message)
    await socket.accept(subprotocol="realtime" if "realtime" in offered else None)
    if refusal is not None:
        await socket.send_text(protocol.error_event(refusal).model_dump_json())
        code = _TRY_AGAIN_LATER if refusal.code == "too_many_conversations" else _POLICY_VIOLATION
        await socket.close(code, refusal.code)
        return
    context.connections.add(socket)
    send_queue: asyncio.Queue[ServerEvent] = asyncio.Queue(_MAX_QUEUED_EVENTS)
    stalled = asyncio.Event()

    def send(event: ServerEvent) -> None:
        try:
            send_queue.put_nowait(event)
        except asyncio.QueueFull:
            stalled.set()

    config = secrets[0].config if secrets else None
    owner = next((owner_id("key", key) for key in offered_keys(socket) if key in context.api_keys), "")
    conversation = open_conversation(context, send, config, beta=is_beta(socket.headers, offered), owner=owner)
    tasks = [
        asyncio.create_task(_read(socket, conversation)),
        asyncio.create_task(_write(socket, send_queue)),
        asyncio.create_task(stalled.wait()),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if stalled.is_set():
            _log.warning("disconnected the client at %s: it does not read its events", socket.client)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await conversation.close()
        context.connections.discard(socket)
        await _close(socket, _TRY_AGAIN_LATER if stalled.is_set() else 1000)


async def _read(socket: WebSocket, conversation: RealtimeConversation) -> None:
    try:
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            # The protocol uses text frames only. A binary frame produces an `error` event instead of being ignored.
            await conversation.receive(text if text is not None else message["bytes"].decode("utf-8", "replace"))
    except (WebSocketDisconnect, RuntimeError):
        return


async def _write(socket: WebSocket, send_queue: asyncio.Queue[ServerEvent]) -> None:
    try:
        while True:
            await socket.send_text((await send_queue.get()).model_dump_json())
            await asyncio.sleep(0)  # lets the event loop detect a lost connection before the next write
    except (WebSocketDisconnect, RuntimeError, OSError):
        return


async def _close(socket: WebSocket, code: int) -> None:
    try:
        await asyncio.wait_for(socket.close(code), timeout=1)
    except (TimeoutError, RuntimeError, WebSocketDisconnect, OSError):
        return  # already closed


def _refusal(socket: WebSocket, context: ServerContext, *, has_secret: bool) -> ErrorDetail | None:
    """Why a client may not connect, or None."""
    if not is_same_site(socket, context.origins, local_only=context.local):
        message = (
            f"pages from {socket.headers.get('origin')} may not connect: start the server with --allow-origin for it"
        )
        return ErrorDetail(code="origin_not_allowed", message=message)
    if context.api_keys and not has_secret and not has_api_key(socket, context.api_keys):
        message = "this server requires an API key: send it as `Authorization: Bearer KEY`"
        return ErrorDetail(code="invalid_api_key", message=message)
    if context.full:
        message = f"the server is at its limit of {context.max_conversations} conversations: try again later"
        return ErrorDetail(type="server_error", code="too_many_conversations", message=message)
    return None
