"""AudioSocket calls: Asterisk's own protocol, on its own TCP port."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from agent.background_tasks import cancel
from server.access.admission import Refused
from server.telephony.carriers.audiosocket import HEADER_BYTES, AudioSocket
from server.telephony.dialect import BadCall, BadMessage, Frame
from server.telephony.routes import Telephony

_log = logging.getLogger("rejoinder.phone")

_MAX_UNIDENTIFIED = 32
"""Connections that have not sent their UUID yet. Further ones are closed at once."""

_IDENTIFY_S = 5.0
"""How long the UUID may take; Asterisk sends it as soon as it has connected. Until then a connection has no line."""


@asynccontextmanager
async def audiosocket_server(listener: socket.socket, telephony: Telephony) -> AsyncIterator[None]:
    """Accept AudioSocket calls on a bound socket."""
    calls: set[asyncio.Task[None]] = set()
    unidentified = asyncio.Semaphore(_MAX_UNIDENTIFIED)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # a coroutine of a server runs in a task
        calls.add(task)
        try:
            await _accept_call(reader, writer, telephony, unidentified)
        finally:
            calls.discard(task)

    server = await asyncio.start_server(accept, sock=listener)
    try:
        yield
    finally:
        server.close()
        await cancel(calls)


async def _accept_call(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, telephony: Telephony, unidentified: asyncio.Semaphore
) -> None:
    address, expected = writer.get_extra_info("peername")[0], telephony.settings.carrier_auth.audiosocket_uuid
    transport, name, wrong_secrets = _TcpTransport(reader, writer), f"from {address}", telephony.context.wrong_secrets
    try:
        if unidentified.locked():
            raise BadCall("too many connections have not sent their UUID", 1013)
        if wrong_secrets.pausing(address):
            raise BadCall("too many wrong UUIDs or secrets came from this address", 1013)
        async with unidentified, asyncio.timeout(_IDENTIFY_S):
            dialect = await _identified(transport)
        if expected is not None and dialect.call_id != str(expected):
            wrong_secrets.add(address)
            raise BadCall("its UUID is not the one that `rejoinder serve` printed", 1008)
    except (BadCall, BadMessage, TimeoutError) as error:
        _log.warning("a call %s was refused: %s", name, str(error) or f"it sent no UUID within {_IDENTIFY_S:g} s")
        await transport.close(0, "")
        return
    try:
        async with telephony.line(name) as admitted:
            await telephony.connection(transport, name, admitted).run(lambda frame: dialect)
    except Refused:
        with suppress(OSError):  # the caller may be gone
            await transport.send(dialect.hang_up())
        await transport.close(0, "")


async def _identified(transport: _TcpTransport) -> AudioSocket:
    """The dialect of a connection, whose first frame is a UUID. Raises BadCall, BadMessage."""
    frame, dialect = await transport.receive(), AudioSocket()
    if frame is not None:
        dialect.parse(frame)
    if not dialect.call_id:
        raise BadCall("its first frame is not a UUID", 1008)
    return dialect


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
