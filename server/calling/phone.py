"""A telephone on a carrier's line: speaks in real time, plays what comes, returns marks when playback reaches them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from server.calling.carriers import Carrier, Clear, Frame, HangUp, Mark, NotUnderstood, Play
from server.report.client import NoServer
from server.report.microphone import Microphone
from server.report.player import Player
from voice.audio import SPEAKING_RATE, Samples, decode, encode

_OPEN_S = 10.0

_GAP_S = 0.4
"""Silence of the line that separates two stretches of speech, where no mark says so."""


@dataclass(frozen=True)
class Weather:
    """What the network does to the caller's frames.

    Attributes:
        jitter_ms: each frame is up to so much late.
        reorder: share of frames that are overtaken by the next one.
        loss: share that never arrives.
    """

    jitter_ms: float = 0.0
    reorder: float = 0.0
    loss: float = 0.0
    seed: int = 0


class Wire(Protocol):
    """The connection to the server under test."""

    async def send(self, frame: Frame) -> None:
        """Raises OSError or ConnectionClosed."""

    async def receive(self) -> Frame | None:
        """None once it is closed."""

    async def close(self) -> None:
        """Close it."""

    async def abort(self) -> None:
        """Be gone, as a line that breaks is."""


class Phone:
    """One call.

    Args:
        carrier: whose line it is on.
        wire: to the server.
        weather: of the caller's frames.

    Attributes:
        player: what was played when, the stretches of speech as its responses.
        heard: everything that came, for listening to.
        clears, marks: how many came.
        faults: what the carrier would not have taken.
        told: called with every thing that happens: `sound`, `end`, `clear` or `gone`.
    """

    def __init__(self, carrier: Carrier, wire: Wire, weather: Weather | None = None) -> None:
        self.carrier = carrier
        self.player = Player()
        self.heard: list[Samples] = []
        self.clears = self.marks = self.stretch = 0
        self.faults: list[str] = []
        self.gone = asyncio.Event()
        self.told: Callable[[str, Samples], None] = lambda kind, samples: None
        self.microphone = Microphone(self.speak, carrier.rate)
        self._wire, self._weather = wire, weather or Weather()
        self._random = random.Random(self._weather.seed)
        self._pending: list[tuple[float, str]] = []
        self._back: Frame | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._ended = True

    async def begin(self, *, microphone: bool = True) -> None:
        """The call is set up, and sound begins; without a microphone, what `speak` is given."""
        for frame in self.carrier.opening():
            await self._wire.send(frame)
        work = [self._read(), self._play(), *([self.microphone.run()] if microphone else [])]
        self._tasks = [asyncio.create_task(one) for one in work]

    async def end(self, *, abruptly: bool = False) -> None:
        """Hang up: as the carrier says it, or with the connection simply gone."""
        with suppress(OSError, ConnectionClosed):
            if not abruptly and (frame := self.carrier.stop()) is not None:
                await self._wire.send(frame)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await (self._wire.abort() if abruptly else self._wire.close())

    async def press(self, digit: str) -> None:
        """Press a key."""
        await self._wire.send(self.carrier.digit(digit))

    async def speak(self, block: Samples) -> None:
        """Send 20 ms of sound at the carrier's rate."""
        if self.gone.is_set() or self._random.random() < self._weather.loss:
            return
        frame = self.carrier.sound(encode(block, self.carrier.encoding))
        with suppress(OSError, ConnectionClosed):
            if self._weather.jitter_ms:
                await asyncio.sleep(self._random.random() * self._weather.jitter_ms / 1000)
            if self._back is None and self._random.random() < self._weather.reorder:
                self._back = frame
                return
            await self._wire.send(frame)
            if self._back is not None:
                await self._wire.send(self._back)
                self._back = None

    async def _read(self) -> None:
        while (frame := await self._wire.receive()) is not None:
            try:
                order = self.carrier.take(frame)
            except NotUnderstood as fault:
                if len(self.faults) < 20:
                    self.faults.append(str(fault))
                continue
            now = time.monotonic()
            match order:
                case Play():
                    self._take(now, decode(order.data, self.carrier.encoding))
                case Mark():
                    self.marks += 1
                    self._pending.append((max(now, self.player.end), order.name))
                case Clear():
                    await self._clear(now)
                case HangUp():
                    break
        self.gone.set()
        self.told("gone", np.zeros(0, np.float32))

    def _take(self, now: float, samples: Samples) -> None:
        if self._ended:
            self._ended = False
            self.stretch += 1
        self.heard.append(samples)
        # Where sound begins and ends is all that is looked at: to repeat samples is exact and does not wait.
        places = np.arange(len(samples) * SPEAKING_RATE // self.carrier.rate) * self.carrier.rate // SPEAKING_RATE
        at_24k, name = samples[places], f"stretch_{self.stretch}"
        self.player.push(now, name, name, at_24k)
        self.told("sound", at_24k)

    async def _clear(self, now: float) -> None:
        self.clears += 1
        self.player.clear(now)
        waiting, self._pending = self._pending, []
        if self.carrier.clear_returns_marks:
            for _, name in waiting:
                await self._reply(self.carrier.played(name))
        await self._reply(self.carrier.cleared())
        self._finish("clear")

    async def _play(self) -> None:
        """Return marks when the playback reaches them, and notice when a stretch of speech is over."""
        while True:
            await asyncio.sleep(0.005)
            now = time.monotonic()
            while self._pending and self._pending[0][0] <= now:
                _, name = self._pending.pop(0)
                await self._reply(self.carrier.played(name))
                if name.endswith(".end"):
                    self._finish("end")
            if not self._ended and now - self.player.end > _GAP_S:
                self._finish("end")

    def _finish(self, kind: str) -> None:
        if not self._ended:
            self._ended = True
            self.told(kind, np.zeros(0, np.float32))

    async def _reply(self, frame: Frame | None) -> None:
        if frame is not None:
            with suppress(OSError, ConnectionClosed):
                await self._wire.send(frame)


@asynccontextmanager
async def dialling(
    url: str,
    carrier: Carrier,
    *,
    weather: Weather | None = None,
    headers: dict[str, str] | None = None,
    microphone: bool = True,
    abruptly: bool = False,
) -> AsyncIterator[Phone]:
    """A call in progress.

    Args:
        url: ws://HOST:PORT/phone, or tcp://HOST:PORT for AudioSocket.
        headers: that the carrier sends with the upgrade.
        microphone: whether the caller's sound runs by itself.
        abruptly: whether the connection just goes in the end.

    Raises:
        NoServer: there is none, or it refuses the call.
    """
    wire = await _dial(url, headers or {})
    phone = Phone(carrier, wire, weather)
    try:
        await phone.begin(microphone=microphone)
        yield phone
    except (OSError, ConnectionClosed) as error:
        raise NoServer(f"{url} ended the call ({error})") from None
    finally:
        await phone.end(abruptly=abruptly)


async def _dial(url: str, headers: dict[str, str]) -> Wire:
    try:
        if url.startswith("tcp:"):
            where = urlsplit(url)
            return _Tcp(*await asyncio.wait_for(asyncio.open_connection(where.hostname, where.port), _OPEN_S))
        return _Websocket(
            await connect(
                url,
                additional_headers=headers,
                max_size=None,
                max_queue=None,
                compression=None,
                open_timeout=_OPEN_S,
                close_timeout=2,
            )
        )
    except InvalidURI:
        raise NoServer(f"{url} is no address: it should look like ws://127.0.0.1:8000/phone") from None
    except InvalidStatus as error:
        said = (error.response.body or b"").decode("utf-8", "replace").strip()
        raise NoServer(f"{url} refuses the call: {error.response.status_code} {said}") from None
    except (OSError, TimeoutError, InvalidHandshake, ValueError) as error:
        raise NoServer(f"{url} cannot be reached ({error}): is the server running there?") from None


class _Websocket:
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


class _Tcp:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, frame: Frame) -> None:
        assert isinstance(frame, bytes)  # AudioSocket's are
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
