"""AudioSocket calls: Asterisk's own protocol, on its own TCP port."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from server.access.admission import Refused
from server.telephony.carriers.audiosocket import HEADER_BYTES, AudioSocket
from server.telephony.dialect import BadCall, Dialect, Frame
from server.telephony.routes import Telephony

_log = logging.getLogger("rejoinder.phone")


@asynccontextmanager
async def audiosocket_server(listener: socket.socket, telephony: Telephony) -> AsyncIterator[None]:
    """Accept AudioSocket calls on a bound socket."""
    calls: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # a coroutine of a server runs in a task
        calls.add(task)
        try:
            await _accept_call(reader, writer, telephony)
        finally:
            calls.discard(task)

    server = await asyncio.start_server(accept, sock=listener)
    try:
        yield
    finally:
        server.close()
        for task in tuple(calls):
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def _accept_call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, telephony: Telephony) -> None:
    transport, name = _TcpTransport(reader, writer), f"from {writer.get_extra_info('peername')[0]}"
    expected = telephony.settings.carrier_auth.audiosocket_uuid

    def detect(frame: Frame) -> Dialect:
        if expected is not None and frame != b"\x01\x00\x10" + expected.bytes:
            raise BadCall("its UUID is not the one that `rejoinder serve` printed", 1008)
        return AudioSocket()

    try:
        async with telephony.line(name) as admitted:
            await telephony.connection(transport, name, admitted).run(detect)
    except Refused:
        await transport.send(AudioSocket().hang_up())
        await transport.close(0, "")


class _TcpTransport:
    """A TCP connection as a `connection.Transport`. AudioSocket has no close codes, so the reason is only logged."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def receive(self) -> Frame | None:
        """A frame has at most 65,535 bytes of payload."""
        try:
            header = await self._reader.readexactly(HEADER_BYTES)
            return header + await self._reader.readexactly(int.from_bytes(header[1:], "big"))
        except (asyncio.IncompleteReadError, OSError):
            return None

    async def send(self, frame: Frame) -> None:
        assert isinstance(frame, bytes)  # AudioSocket frames always are
        self._writer.write(frame)
        await self._writer.drain()

    async def close(self, code: int, reason: str) -> None:
        self._writer.close()
        with suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), 1)
        self._writer.transport.abort()  # do not wait for a peer that does not read
