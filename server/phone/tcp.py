"""AudioSocket calls: Asterisk's own protocol, on a TCP port of its own."""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from server.phone.audiosocket import HEADER, AudioSocket
from server.phone.line import Line
from server.phone.routes import Switchboard
from server.phone.wire import BadCall, Dialect, Frame

_log = logging.getLogger("rejoinder.phone")


@asynccontextmanager
async def audiosocket_server(taken: socket.socket, board: Switchboard) -> AsyncIterator[None]:
    """Take AudioSocket calls on a bound socket."""
    under_way: set[asyncio.Task[None]] = set()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # a coroutine of a server runs in a task
        under_way.add(task)
        try:
            await _take_call(reader, writer, board)
        finally:
            under_way.discard(task)

    server = await asyncio.start_server(take, sock=taken)
    try:
        yield
    finally:
        server.close()
        for task in tuple(under_way):
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def _take_call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, board: Switchboard) -> None:
    wire, who = _Stream(reader, writer), f"from {writer.get_extra_info('peername')[0]}"
    if board.full:
        _log.warning("a call %s was refused: %d conversations are under way, the most there may be", who, board.most)
        await wire.send(AudioSocket().hang_up())
        await wire.close(0, "")
        return
    board.calls.add(wire)
    try:
        line = Line(wire, who, board.settings.rules, board.prompts, board.begin)
        await line.run(_Expected(board.settings.trust.audiosocket_id).recognised)
    finally:
        board.calls.discard(wire)


class _Expected:
    """Lets in calls with the right UUID, or all."""

    def __init__(self, wanted: uuid.UUID | None) -> None:
        self._wanted = wanted

    def recognised(self, frame: Frame) -> Dialect:
        """The dialect, once the UUID was looked at. Raises BadCall."""
        if self._wanted is not None and frame != b"\x01\x00\x10" + self._wanted.bytes:
            raise BadCall("its UUID is not the one that `rejoinder serve` printed", 1008)
        return AudioSocket()


class _Stream:
    """A TCP connection as a call's wire. AudioSocket has no close codes: the log has the reason."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def receive(self) -> Frame | None:
        """See `line.Wire`. A frame has 65,535 bytes at most."""
        try:
            header = await self._reader.readexactly(HEADER)
            return header + await self._reader.readexactly(int.from_bytes(header[1:], "big"))
        except (asyncio.IncompleteReadError, OSError):
            return None

    async def send(self, frame: Frame) -> None:
        """See `line.Wire`."""
        assert isinstance(frame, bytes)  # AudioSocket's are
        self._writer.write(frame)
        await self._writer.drain()

    async def close(self, code: int, reason: str) -> None:
        """See `line.Wire`."""
        self._writer.close()
        with suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), 1)
        self._writer.transport.abort()  # one that does not read is not waited for
