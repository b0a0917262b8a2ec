"""Clients of the cluster: they open conversations, stream audio, take turns, and come back when they lost it."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from contextlib import suppress
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.typing import Subprotocol

from voice.audio.codec import to_pcm16

FRAME_S = 0.04
"""Of an audio event, as clients send it."""

_SILENCE = json.dumps(
    {
        "type": "input_audio_buffer.append",
        "audio": base64.b64encode(to_pcm16(np.zeros(int(24_000 * FRAME_S), np.float32))).decode(),
    }
)


class Refused(Exception):
    """The server has no room."""


class Caller:
    """One conversation.

    Args:
        address: `host:port`.

    Attributes:
        cut: how often the connection ended although the caller had not closed it.
        process: of the replica that answered last.
        messages: that the replica had read when it answered last.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._client: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._streamer: asyncio.Task[None] | None = None
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._closing = False
        self.token, self.process, self.messages = "", "", 0
        self.cut = 0
        self.dropped = asyncio.Event()

    async def open(self, token: str = "") -> None:
        """Connect, with a token to continue an earlier conversation. Raises Refused, OSError."""
        subprotocols = [Subprotocol("realtime"), *([Subprotocol(f"rejoinder-resume.{token}")] if token else [])]
        url = f"ws://{self._address}/v1/realtime"
        self._events, self.dropped, self._closing = asyncio.Queue(), asyncio.Event(), False
        self._client = await connect(url, subprotocols=subprotocols, compression=None, open_timeout=60)
        self._reader = asyncio.create_task(self._read(self._client))
        first = await self._events.get()
        if first["type"] != "session.created":
            raise Refused(first.get("error", {}).get("code", first["type"]))
        if not token:
            include = {"type": "realtime", "include": ["rejoinder.resume"]}
            await self._send({"type": "session.update", "session": include})
        self.token = str((await self.wait_for("rejoinder.resume"))["token"])

    async def come_back(self, limit_s: float = 30.0) -> float:
        """Continue on whatever replica has room. Returns how long that took, in s. Raises TimeoutError."""
        began, token = time.monotonic(), self.token
        async with asyncio.timeout(limit_s):
            while True:
                try:
                    await self.open(token)
                except (OSError, Refused, ConnectionClosed, InvalidHandshake):
                    await asyncio.sleep(0.1)
                else:
                    return time.monotonic() - began

    async def turn(self) -> float:
        """Ask, and listen to the whole response. Returns s until its first audio. Raises ConnectionClosed."""
        began = time.monotonic()
        await self._send({"type": "response.create"})
        await self.wait_for("response.output_audio.delta")
        first_s = time.monotonic() - began
        done = await self.wait_for("response.done")
        words = done["response"]["output"][0]["content"][0]["transcript"].split()
        self.process, self.messages = words[1], int(words[4])
        return first_s

    async def round_trip(self) -> float:
        """s from an event to its answer, for which the server has nothing to do."""
        began = time.perf_counter()
        await self._send({"type": "input_audio_buffer.clear"})
        await self.wait_for("input_audio_buffer.cleared")
        return time.perf_counter() - began

    def stream(self) -> None:
        """Send silence in real time from now on."""
        self._streamer = asyncio.create_task(self._stream())

    async def close(self) -> None:
        """Hang up."""
        self._closing = True
        for task in (self._streamer, self._reader):
            if task is not None:
                task.cancel()
        if self._client is not None:
            with suppress(OSError, TimeoutError):
                await self._client.close()

    async def wait_for(self, kind: str) -> dict[str, Any]:
        """The next event of a type. Raises ConnectionClosed, TimeoutError."""
        async with asyncio.timeout(60):
            while True:
                event = await self._events.get()
                if event["type"] == kind:
                    return event
                if event["type"] == "closed":
                    raise ConnectionClosed(None, None)

    async def _send(self, event: dict[str, Any]) -> None:
        assert self._client is not None
        await self._client.send(json.dumps(event))

    async def _read(self, client: ClientConnection) -> None:
        try:
            async for frame in client:
                self._events.put_nowait(json.loads(frame))
        except ConnectionClosed:
            pass
        if not self._closing:
            self.cut += 1
        self.dropped.set()
        self._events.put_nowait({"type": "closed"})

    async def _stream(self) -> None:
        assert self._client is not None
        next_at = time.monotonic()
        with suppress(ConnectionClosed):
            while True:
                await self._client.send(_SILENCE)
                next_at += FRAME_S
                await asyncio.sleep(max(0.0, next_at - time.monotonic()))


async def open_all(address: str, count: int, together: int = 8) -> list[Caller]:
    """Open so many conversations, some at a time. Raises Refused."""
    gate = asyncio.Semaphore(together)

    async def one() -> Caller:
        caller = Caller(address)
        async with gate:
            await caller.open()
        return caller

    return list(await asyncio.gather(*(one() for _ in range(count))))


async def close_all(callers: list[Caller]) -> None:
    """Hang up everywhere."""
    await asyncio.gather(*(caller.close() for caller in callers))
