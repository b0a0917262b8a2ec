"""The Realtime endpoint over real sockets, and clients that misbehave."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from server.access import admission as admission_module
from server.access.admission import Admission
from server.access.keys import ApiKeys, KeyStore
from server.budgets import Budget
from server.context import SessionLimits
from server.realtime import resumable_session as outbox
from server.realtime import websocket
from server.realtime.events import ServerEvent, server_event
from server.serving.http_server import MAX_FRAME_BYTES
from tests.real_time import HANG_S, wait_until
from tests.server.live_server import connected, receive, serving, speak_one_turn


async def test_a_spoken_turn_over_a_socket() -> None:
    with serving() as address:
        async with connected(address) as client:
            await receive(client, "session.created")
            assert (await speak_one_turn(client))["response"]["status"] == "completed"


async def test_a_bad_client_does_not_disturb_the_others() -> None:
    with serving() as address:
        async with connected(address) as good, connected(address) as bad, connected(address) as worse:
            await bad.send(b"\x00\xff binary")
            assert (await receive(bad, "error"))["error"]["code"] == "invalid_json"
            for too_large in (
                "x" * (2 << 20),
                json.dumps({"type": "session.update", "session": {"include": [0] * 20_000}}),
            ):
                await bad.send(too_large)
                assert (await receive(bad, "error"))["error"]["code"] == "event_too_large"
            with pytest.raises(ConnectionClosed) as closed:
                await worse.send("x" * (MAX_FRAME_BYTES + 1))
                await receive(worse, "never")
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
            assert (await speak_one_turn(bad))["response"]["status"] == "completed"
            assert (await speak_one_turn(good))["response"]["status"] == "completed"


async def test_a_client_that_disconnects_during_a_response_is_no_longer_counted() -> None:
    with serving() as address:
        async with connected(address) as client:
            await client.send(json.dumps({"type": "response.create"}))
            client.transport.abort()
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=HANG_S) as web:

            async def none_is_counted() -> bool:
                return bool((await web.get("/healthz")).json()["conversations"] == 0)

            await wait_until(none_is_counted)


async def test_an_event_that_does_not_leave_in_time_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.realtime.websocket.OUTBOX", Budget(1 << 20, 0.05))
    queue = outbox.Outbox()
    queue.attach()
    queue(server_event("input_audio_buffer.cleared"))

    async def never_sent(text: str) -> None:
        await asyncio.Event().wait()

    peer, session, context = SimpleNamespace(send_text=never_sent), SimpleNamespace(outbox=queue), SimpleNamespace()
    context.session_limits = SessionLimits()
    async with asyncio.timeout(HANG_S):
        await websocket._Connection(peer, session, context)._write()  # type: ignore[arg-type]
    assert queue.stalled.is_set()


async def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "OUTBOX", Budget(200_000, 60.0))
    # uvicorn would wait 10 s for this client's close frame.
    close_timeout = property(lambda self: 0.2, lambda self, seconds: None)
    monkeypatch.setattr(WebSocketsSansIOProtocol, "close_timeout", close_timeout, raising=False)
    with serving() as address:
        reader, writer = await asyncio.open_connection(*address.split(":"), limit=1 << 12)
        key = base64.b64encode(b"0123456789abcdef").decode()
        writer.write(
            f"GET /v1/realtime HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        await writer.drain()
        update = json.dumps({"type": "session.update", "session": {"instructions": "x" * 20_000}}).encode()
        head = bytes([0x81, 0xFE]) + len(update).to_bytes(2, "big") + bytes(4)  # masked with zeros
        async with asyncio.timeout(2 * HANG_S):
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                for _ in range(3000):  # the server responds to each with 20 kB that nobody reads
                    writer.write(head + update)
                    await writer.drain()
                await asyncio.sleep(1)
                while True:  # the data sent before the server closed the connection, then its end
                    if not await reader.read(1 << 16):
                        raise ConnectionError
        writer.close()


async def test_a_conversation_beyond_the_limit_is_rejected_with_an_error() -> None:
    with serving(max_conversations=1) as address:
        async with connected(address) as first:
            await receive(first, "session.created")
            async with connected(address) as second:
                error = (await receive(second, "error"))["error"]
                assert error["code"] == "too_many_conversations"
                with pytest.raises(ConnectionClosed):
                    await second.recv()
                assert second.close_code == 1013
            assert (await speak_one_turn(first))["response"]["status"] == "completed"


class _BurstConversation:
    """Is busy with the first event until the client has gone, then sends two hundred at once.

    Args:
        client_gone: set by the test.
        closed: set when the server has closed the conversation.
    """

    def __init__(
        self, send: Callable[[ServerEvent], None], client_gone: threading.Event, closed: threading.Event
    ) -> None:
        self._send, self._client_gone, self._closed = send, client_gone, closed
        self.copied_bytes, self.resumable = 0, False

    async def receive(self, text: str) -> None:
        while not self._client_gone.is_set():  # noqa: ASYNC110 - the event belongs to another thread
            await asyncio.sleep(0.01)
        for _ in range(60):  # read for 3 s, until the connection can be closed
            self._send(server_event("rejoinder.phase", phase="listening"))
        await asyncio.sleep(0.3)

    async def close(self) -> None:
        self._closed.set()


async def test_nothing_is_written_to_a_connection_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio logs every such write. The unread events keep the server from noticing the reset before it writes."""
    client_gone, closed = threading.Event(), threading.Event()
    monkeypatch.setattr(
        websocket,
        "RealtimeConversation",
        lambda context, slot, send, *_, **__: _BurstConversation(send, client_gone, closed),
    )
    with serving() as address:
        client = await connect(f"ws://{address}/v1/realtime")
        for _ in range(4):
            await client.send("{}")
        await asyncio.sleep(0.1)
        reset_on_close = struct.pack("ii", 1, 0)
        client.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset_on_close)
        client.transport.abort()
        await asyncio.sleep(0.1)  # the transport closes its socket in the next iteration of the event loop
        client_gone.set()
        await wait_until(closed.is_set)
    assert [record for record in caplog.records if "socket.send()" in record.getMessage()] == []


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (SessionLimits(idle_s=0.2), "idle_timeout"),
        (SessionLimits(max_duration_s=0.2), "session_expired"),
    ],
)
async def test_a_session_ends_when_it_is_idle_or_too_long(limits: SessionLimits, code: str) -> None:
    with serving(session_limits=limits) as address:
        async with connected(address) as client:
            assert (await receive(client, "error"))["error"]["code"] == code
            await client.wait_closed()
            assert (client.close_code, client.close_reason) == (1001, code)


async def test_a_revoked_key_ends_its_conversation_and_its_client_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission_module, "_CHECK_INTERVAL_S", 0.05)
    store = KeyStore(tmp_path / "keys.sqlite")
    headers = {"Authorization": f"Bearer {store.add('alice')}"}
    with serving(admission=Admission(4, ApiKeys(store=store))) as address:
        async with httpx.AsyncClient(base_url=f"http://{address}", headers=headers, timeout=HANG_S) as web:
            secret = (await web.post("/v1/realtime/client_secrets", json={})).json()["value"]
        async with connected(address, additional_headers=headers) as client:
            await receive(client, "session.created")
            store.revoke("alice")
            assert (await receive(client, "error"))["error"]["code"] == "key_revoked"
            await client.wait_closed()
            assert client.close_code == 1008
        async with connected(address, additional_headers={"Authorization": f"Bearer {secret}"}) as client:
            assert (await receive(client, "error"))["error"]["code"] == "invalid_api_key"


async def test_a_client_behind_a_proxy_without_a_key_is_told_not_to_come_back() -> None:
    """The page would otherwise try again and again, and its notice about the key would give way to one about that."""
    with serving() as address:
        async with connected(address, additional_headers={"X-Forwarded-For": "203.0.113.7"}) as client:
            assert (await receive(client, "error"))["error"]["code"] == "api_key_required"
            await client.wait_closed()
            assert client.close_code == 1008


async def test_events_are_read_by_their_bytes_and_changes_by_the_size_of_the_whole_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket, "_BYTE_BURST", 300_000.0)
    monkeypatch.setattr(websocket, "_BYTES_PER_SECOND", 200_000.0)
    large = {"type": "function", "name": "lookup", "parameters": {"type": "object", "description": "x" * 100_000}}
    with serving() as address:
        async with connected(address) as flooder, connected(address) as witness:
            for session in ({"tools": [large]}, *[{"instructions": "Be brief."}] * 20):
                await flooder.send(json.dumps({"type": "session.update", "session": {"type": "realtime", **session}}))
            assert (await speak_one_turn(witness))["response"]["status"] == "completed"
            updates, started = 0, time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(1.5):
                    while True:
                        await receive(flooder, "session.updated")
                        updates += 1
            assert 1 <= updates <= 3 + (time.monotonic() - started) * 3 + 6


async def test_a_flood_of_events_is_read_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "_EVENT_BURST", 5.0)
    monkeypatch.setattr(websocket, "_EVENTS_PER_SECOND", 20.0)
    with serving() as address:
        async with connected(address) as flooder, connected(address) as witness:
            for _ in range(200):
                await flooder.send("{}")
            assert (await speak_one_turn(witness))["response"]["status"] == "completed"
            errors, started = 0, time.monotonic()
            while time.monotonic() - started < 0.5:
                await receive(flooder, "error")
                errors += 1
            assert errors < 40
