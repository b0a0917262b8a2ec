"""Events on their way to the client of one conversation, which outlives its connections.

A conversation sends to its outbox, which outlives the connection. While there is no client, what is sent is dropped, so
that a client that comes back hears nothing old.
"""

from __future__ import annotations

import asyncio

from server.access.admission import Slot
from server.budgets import OUTBOX, memory
from server.realtime.conversation import RealtimeConversation
from server.realtime.events import ServerEvent
from server.realtime.session_record import SessionRecord


class Outbox:
    """Queues the events of a conversation for the client that is connected.

    Attributes:
        stalled: set when the client does not read, within the budget.
        dropped: events that no client got.
    """

    def __init__(self) -> None:
        self._queue: asyncio.Queue[str] | None = None
        self._bytes = 0
        self.stalled = asyncio.Event()
        self.dropped = 0

    def __call__(self, event: ServerEvent) -> None:
        """Queue an event; never waits. Sets `stalled` once the events that wait exceed their budget."""
        if self._queue is None:
            self.dropped += 1
            return
        text = event.model_dump_json()
        if self._bytes + memory(text) > OUTBOX.bytes:
            self.dropped += 1
            self.stalled.set()
            return
        self._bytes += memory(text)
        self._queue.put_nowait(text)

    @property
    def queued(self) -> int:
        """Events that wait to be sent."""
        return 0 if self._queue is None else self._queue.qsize()

    def attach(self) -> None:
        """A client has connected."""
        self._queue, self._bytes = asyncio.Queue(), 0
        self.stalled.clear()

    def detach(self) -> None:
        """The client has gone; what it was not sent is dropped."""
        self.dropped += self.queued
        self._queue = None

    async def next(self) -> str:
        """The next event for the client that is attached, as JSON."""
        assert self._queue is not None  # a client is attached
        text = await self._queue.get()
        self._bytes -= memory(text)
        return text


class ResumableSession:
    """A conversation with what it needs to survive its connection.

    Attributes:
        token: the client shows it to come back.
        displaced: set when the client has come back on another connection, although this one still seems to be open.
        detached: set when no connection uses the session any more.
        recorded: its record as replicas share it, and when it was written in monotonic seconds; None if it is not.
    """

    def __init__(self, conversation: RealtimeConversation, outbox: Outbox, slot: Slot, token: str) -> None:
        self.conversation, self.outbox, self.slot, self.token = conversation, outbox, slot, token
        self.displaced, self.detached = asyncio.Event(), asyncio.Event()
        self.recorded: tuple[SessionRecord, float] | None = None

    def attach(self) -> None:
        """A connection uses the session."""
        self.displaced, self.detached = asyncio.Event(), asyncio.Event()
        self.outbox.attach()

    def detach(self) -> None:
        """The connection has gone: the conversation falls silent, and what was not heard is forgotten."""
        self.outbox.detach()
        self.conversation.disconnected()
        self.detached.set()

    async def close(self) -> None:
        """Give back the slot, so that the next caller can have it, and end the conversation. Events that were not sent
        are freed at once: the rest waits for Python's collector."""
        self.outbox.detach()
        self.slot.count_dropped(self.outbox.dropped)
        self.slot.release()
        await self.conversation.close()
