"""Events on their way to the client of one conversation, which outlives its connections.

A conversation sends to its outbox, which outlives the connection. While there is no client, what is sent is dropped, so
that a client that comes back hears nothing old.
"""

from __future__ import annotations

import asyncio

from server.access.admission import Slot
from server.realtime.conversation import RealtimeConversation
from server.realtime.events import ServerEvent
from server.realtime.session_record import SessionRecord

MAX_QUEUED_EVENTS = 4096
"""Events that may wait for a client that does not read before it is disconnected: several minutes of audio, 30 MB."""


class Outbox:
    """Queues the events of a conversation for the client that is connected.

    Attributes:
        stalled: set when the client does not read.
        dropped: events that no client got.
    """

    def __init__(self) -> None:
        self._queue: asyncio.Queue[ServerEvent] | None = None
        self.stalled = asyncio.Event()
        self.dropped = 0

    def __call__(self, event: ServerEvent) -> None:
        """Queue an event; never waits."""
        if self._queue is None:
            self.dropped += 1
            return
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self.dropped += 1
            self.stalled.set()

    @property
    def queued(self) -> int:
        """Events that wait to be sent."""
        return 0 if self._queue is None else self._queue.qsize()

    def attach(self) -> None:
        """A client has connected."""
        self._queue = asyncio.Queue(MAX_QUEUED_EVENTS)
        self.stalled.clear()

    def detach(self) -> None:
        """The client has gone; what it was not sent is dropped."""
        self.dropped += self.queued
        self._queue = None

    async def next(self) -> ServerEvent:
        """The next event for the client that is attached."""
        assert self._queue is not None  # a client is attached
        return await self._queue.get()


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
        """Give back the slot, so that the next caller can have it, and end the conversation."""
        self.slot.count_dropped(self.outbox.dropped)
        self.slot.release()
        await self.conversation.close()
