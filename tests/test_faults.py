"""Clients that misbehave in every way at once, over real sockets, next to a witness whose every turn is answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from server.access.admission import Admission
from tests.fakes import LoudnessDetector
from tests.real_time import wait_until
from tests.server.live_server import connected, receive, serving, speak_one_turn
from voice import session

TURNS = 4


async def cut(address: str) -> None:
    """Connections that are reset in the middle of a response."""
    async with connect(f"ws://{address}/v1/realtime") as client:
        await client.send(json.dumps({"type": "response.create"}))
        reset = struct.pack("ii", 1, 0)
        client.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        client.transport.abort()


async def half_open(address: str) -> None:
    """A websocket that is opened and never used, and TCP connections that send half a request."""
    _, writer = await asyncio.open_connection(*address.split(":"))
    writer.write(b"GET /v1/realtime HTTP/1.1\r\nHost: x\r\nUpgrade: webso")
    await writer.drain()
    await asyncio.sleep(0.5)
    writer.transport.abort()


async def garbage(address: str) -> None:
    """Bytes that are no frames."""
    dice = random.Random(1)
    async with connect(f"ws://{address}/v1/realtime") as client:
        for _ in range(20):
            client.transport.write(dice.randbytes(200))
            await asyncio.sleep(0)


async def malformed(address: str) -> None:
    """A thousand frames that are no events."""
    dice = random.Random(2)
    async with connect(f"ws://{address}/v1/realtime") as client:
        reading = asyncio.create_task(_drain(client.recv))
        for _ in range(1000):
            await client.send("".join(dice.choices('{}[]":,typesonull0123\\u', k=dice.randint(0, 60))))
        reading.cancel()


async def slow_reader(address: str) -> None:
    """A client that asks for responses and reads nothing."""
    async with connect(f"ws://{address}/v1/realtime", max_queue=1) as client:
        for _ in range(50):
            await client.send(json.dumps({"type": "session.update", "session": {"instructions": "x" * 10_000}}))
        await asyncio.sleep(0.3)
        client.transport.abort()


async def crowd(address: str) -> None:
    """More clients than there are slots."""

    async def knock() -> None:
        async with connect(f"ws://{address}/v1/realtime") as client:
            await client.recv()

    await asyncio.gather(*(knock() for _ in range(30)))


async def _drain(receive_one: Callable[[], Awaitable[object]]) -> None:
    while True:
        await receive_one()


async def test_a_witness_is_answered_while_others_misbehave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)
    admission = Admission(12)
    with serving(admission=admission) as address:
        async with connected(address) as witness:
            await receive(witness, "session.created")

            async def misbehave(kind: Callable[[str], Awaitable[None]]) -> None:
                for _ in range(2):
                    with contextlib.suppress(ConnectionClosed, OSError, RuntimeError, asyncio.IncompleteReadError):
                        await kind(address)

            kinds = [cut, half_open, garbage, malformed, slow_reader, crowd]
            others = asyncio.gather(*(misbehave(kind) for kind in kinds))
            statuses = [(await speak_one_turn(witness))["response"]["status"] for _ in range(TURNS)]
            await others
            statuses.append((await speak_one_turn(witness))["response"]["status"])
            assert statuses == ["completed"] * (TURNS + 1)
            await wait_until(lambda: len(admission.slots) == 1)  # nobody else holds a slot
        await wait_until(lambda: not admission.slots)
    assert admission.refusals["too_many_conversations"] > 0
