"""A simulated telephone: speaks in real time, plays what it receives, and returns marks when playback reaches them."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlencode, urlsplit

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from lab.simulator.carriers import (
    CalledFunction,
    Carrier,
    Clear,
    Frame,
    HangUp,
    Mark,
    Play,
    ProtocolViolation,
    parse_called_function,
)
from lab.simulator.errors import ServerUnavailable, unreachable, without_query
from lab.simulator.microphone import Microphone
from lab.simulator.player import Player
from voice.audio.codec import OUTPUT_RATE, Samples, decode, encode

_log = logging.getLogger("rejoinder.simulator")

_CONNECT_TIMEOUT_S = 10.0

_GAP_S = 0.4
"""Silence that separates two utterances where no mark separates them."""


@dataclass(frozen=True)
class NetworkConditions:
    """How the network impairs the caller's frames.

    Attributes:
        jitter_ms: maximum delay of a frame.
        reorder: fraction of frames that the next one overtakes.
        loss: fraction of frames that never arrive.
    """

    jitter_ms: float = 0.0
    reorder: float = 0.0
    loss: float = 0.0
    seed: int = 0


class Transport(Protocol):
    """The connection to the server under test."""

    async def send(self, frame: Frame) -> None:
        """Raises OSError or ConnectionClosed."""

    async def receive(self) -> Frame | None:
        """The next frame; None once the connection is closed."""

    async def close(self) -> None:
        """Close the connection."""

    async def abort(self) -> None:
        """Drop the connection without a goodbye."""


class Phone:
    """One call.

    Args:
        carrier: the carrier that connects the call.
        transport: to the server.
        network: conditions for the caller's frames.

    Attributes:
        player: what was played when, with utterances as its responses.
        received: all audio that arrived, for listening to.
        clears: number of clears that arrived.
        marks: number of marks that arrived.
        utterance: number of the latest utterance.
        functions: functions that the assistant has called, each with when that was reported (`time.monotonic`).
        violations: what the carrier would not have accepted.
        disconnected: set once the server has ended the call.
        on_event: called with every event: `sound`, `end` (of an utterance, by its mark), `silence` (after
            one without a mark), `clear` or `gone`.
    """

    def __init__(self, carrier: Carrier, transport: Transport, network: NetworkConditions | None = None) -> None:
        self.carrier = carrier
        self.player = Player()
        self.received: list[Samples] = []
        self.clears = self.marks = self.utterance = 0
        self.functions: list[tuple[float, CalledFunction]] = []
        self.violations: list[str] = []
        self.disconnected = asyncio.Event()
        self.on_event: Callable[[str, Samples], None] = lambda kind, samples: None
        self.microphone = Microphone(self.send_audio, carrier.rate)
        self._transport, self._network = transport, network or NetworkConditions()
        self._random = random.Random(self._network.seed)
        self._pending_marks: list[tuple[float, str]] = []
        self._overtaken: Frame | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._utterance_ended = True

    async def start(self, *, microphone: bool = True) -> None:
        """Set up the call and start its audio. Without a microphone, only `send_audio` sends audio."""
        for frame in self.carrier.opening_frames():
            await self._transport.send(frame)
        coroutines = [self._read(), self._play(), *([self.microphone.run()] if microphone else [])]
        self._tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]

    async def hang_up(self, *, abruptly: bool = False) -> None:
        """End the call, either with the carrier's goodbye or by dropping the connection."""
        with suppress(OSError, ConnectionClosed):
            if not abruptly and (frame := self.carrier.stop()) is not None:
                await self._transport.send(frame)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await (self._transport.abort() if abruptly else self._transport.close())

    async def press(self, digit: str) -> None:
        """Press a key."""
        await self._transport.send(self.carrier.dtmf(digit))

    async def send_audio(self, block: Samples) -> None:
        """Send 20 ms of audio at the carrier's rate."""
        if self.disconnected.is_set() or self._random.random() < self._network.loss:
            return
        frame = self.carrier.audio(encode(block, self.carrier.encoding))
        with suppress(OSError, ConnectionClosed):
            if self._network.jitter_ms:
                await asyncio.sleep(self._random.random() * self._network.jitter_ms / 1000)
            if self._overtaken is None and self._random.random() < self._network.reorder:
                self._overtaken = frame
                return
            await self._transport.send(frame)
            if self._overtaken is not None:
                await self._transport.send(self._overtaken)
                self._overtaken = None

    async def _read(self) -> None:
        while (frame := await self._transport.receive()) is not None:
            if (called := parse_called_function(frame)) is not None:
                self.functions.append((time.monotonic(), called))
                _log.info("the assistant called %s(%s) → %s", called.name, called.arguments, called.output)
                continue
            try:
                command = self.carrier.parse(frame)
            except ProtocolViolation as error:
                if len(self.violations) < 20:
                    self.violations.append(str(error))
                continue
            now = time.monotonic()
            match command:
                case Play():
                    self._receive_audio(now, decode(command.data, self.carrier.encoding))
                case Mark():
                    self.marks += 1
                    self._pending_marks.append((max(now, self.player.end), command.name))
                case Clear():
                    await self._clear(now)
                case HangUp():
                    break
        self.disconnected.set()
        self.on_event("gone", np.zeros(0, np.float32))

    def _receive_audio(self, now: float, samples: Samples) -> None:
        if self._utterance_ended:
            self._utterance_ended = False
            self.utterance += 1
        self.received.append(samples)
        # Only where audio begins and ends matters here: repeating samples is exact and, unlike a filter, adds no delay.
        positions = np.arange(len(samples) * OUTPUT_RATE // self.carrier.rate) * self.carrier.rate // OUTPUT_RATE
        at_24k, name = samples[positions], f"utterance_{self.utterance}"
        self.player.push(now, name, name, at_24k)
        self.on_event("sound", at_24k)

    async def _clear(self, now: float) -> None:
        self.clears += 1
        self.player.clear(now)
        pending, self._pending_marks = self._pending_marks, []
        if self.carrier.clear_returns_marks:
            for _, name in pending:
                await self._reply(self.carrier.mark_played(name))
        await self._reply(self.carrier.cleared())
        self._end_utterance("clear")

    async def _play(self) -> None:
        """Return marks when playback reaches them, and notice when an utterance ends."""
        while True:
            await asyncio.sleep(0.005)
            now = time.monotonic()
            while self._pending_marks and self._pending_marks[0][0] <= now:
                _, name = self._pending_marks.pop(0)
                await self._reply(self.carrier.mark_played(name))
                if name.endswith(".end"):
                    self._end_utterance("end")
            if not self._utterance_ended and now - self.player.end > _GAP_S:
                self._end_utterance("silence")

    def _end_utterance(self, kind: str) -> None:
        if not self._utterance_ended:
            self._utterance_ended = True
            self.on_event(kind, np.zeros(0, np.float32))

    async def _reply(self, frame: Frame | None) -> None:
        if frame is not None:
            with suppress(OSError, ConnectionClosed):
                await self._transport.send(frame)


def with_token(url: str, token: str | None) -> str:
    """The address of a server whose calls need a secret. AudioSocket's have it in their UUID."""
    if not token or not url.startswith("ws"):
        return url
    return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode({'token': token})}"


@asynccontextmanager
async def dial(
    url: str,
    carrier: Carrier,
    *,
    network: NetworkConditions | None = None,
    headers: dict[str, str] | None = None,
    microphone: bool = True,
    abruptly: bool = False,
) -> AsyncIterator[Phone]:
    """Place a call; yields it while it lasts.

    Args:
        url: ws://HOST:PORT/phone, or tcp://HOST:PORT for AudioSocket.
        network: conditions for the caller's frames.
        headers: that the carrier sends with the upgrade.
        microphone: whether the phone's microphone streams on its own.
        abruptly: whether to end the call by dropping the connection.

    Raises:
        ServerUnavailable: there is no server, or it refuses the call.
    """
    transport = await _connect(url, headers or {})
    phone = Phone(carrier, transport, network)
    try:
        await phone.start(microphone=microphone)
        yield phone
    except (OSError, ConnectionClosed) as error:
        raise ServerUnavailable(f"{without_query(url)} ended the call ({error})") from None
    finally:
        await phone.hang_up(abruptly=abruptly)


async def _connect(url: str, headers: dict[str, str]) -> Transport:
    try:
        if url.startswith("tcp:"):
            parts = urlsplit(url)
            opening = asyncio.open_connection(parts.hostname, parts.port)
            return _TcpTransport(*await asyncio.wait_for(opening, _CONNECT_TIMEOUT_S))
        return _WebSocketTransport(
            await connect(
                url,
                additional_headers=headers,
                max_size=None,
                max_queue=None,
                compression=None,
                open_timeout=_CONNECT_TIMEOUT_S,
                close_timeout=2,
            )
        )
    except InvalidURI:
        raise ServerUnavailable(
            f"{without_query(url)} is not a valid URL: it should look like ws://127.0.0.1:8000/phone"
        ) from None
    except (OSError, TimeoutError, InvalidHandshake, ValueError) as error:
        raise unreachable(url, error) from None


class _WebSocketTransport:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, frame: Frame) -> None:
        await self._socket.send(frame)

    async def receive(self) -> Frame | None:
        try:
            return await self._socket.recv()
        except ConnectionClosed:
            return None

    async def close(self) -> None:
        await self._socket.close()

    async def abort(self) -> None:
        self._socket.transport.abort()


class _TcpTransport:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, frame: Frame) -> None:
        assert isinstance(frame, bytes)  # AudioSocket frames always are
        self._writer.write(frame)
        await self._writer.drain()

    async def receive(self) -> Frame | None:
        try:
            header = await self._reader.readexactly(3)
            return header + await self._reader.readexactly(int.from_bytes(header[1:], "big"))
        except (asyncio.IncompleteReadError, OSError):
            return None

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), 1)

    async def abort(self) -> None:
        self._writer.transport.abort()
