"""Captions of a speaker for several listeners: they hold a ticket, with which they can read and do nothing else."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from server.budgets import CAPTIONS
from server.server_sent_events import DONE, event

MAX_LISTENERS = 100
"""Of one session."""

_MAX_UNREAD = 256
"""Events that a listener may be late, half a minute of fast speech. It is disconnected then, and may come back to all
that is kept."""

_KEEP_ALIVE_S = 15.0
"""Proxies close connections on which nothing comes for a minute."""

_MAX_UNFINISHED = 8
"""Turns that may be in progress or wait for their final transcripts; of older ones nothing follows."""

_ID_PREFIX, _TICKET_PREFIX = "cap_", "ct_"


class TooManyListeners(Exception):
    """A session has as many listeners as it may have."""


class CaptionBroadcast:
    """The captions of one session.

    Args:
        on_listeners: called when a listener has come or gone, with their number.
    """

    def __init__(self, on_listeners: Callable[[int], None]) -> None:
        self.id, self.ticket = _ID_PREFIX + secrets.token_urlsafe(9), _TICKET_PREFIX + secrets.token_urlsafe(24)
        self._on_listeners = on_listeners
        self._finished, self._finished_bytes = deque[str](), 0
        self._unfinished: dict[str, str] = {}
        self._listeners: set[asyncio.Queue[str | None]] = set()
        self._closed = False

    def publish(self, item_id: str, change: Mapping[str, Any], whole: Mapping[str, Any], *, final: bool) -> None:
        """Send a change of a turn's captions to all listeners.

        Args:
            whole: the same for those who come later.
        """
        self._unfinished.pop(item_id, None)
        if final:
            self._keep(event(whole))
        else:
            self._unfinished[item_id] = event(whole)
            if len(self._unfinished) > _MAX_UNFINISHED:
                del self._unfinished[next(iter(self._unfinished))]
        if self._listeners:
            self._send(event(change))

    def listen(self) -> AsyncIterator[str]:
        """Server-sent events: what was said so far, as far as it is kept, and what follows. Raises TooManyListeners."""
        if len(self._listeners) >= MAX_LISTENERS:
            raise TooManyListeners(
                f"{MAX_LISTENERS} listeners read these captions, which is the limit: try again later"
            )
        return self._listen()

    def close(self) -> None:
        """The session has ended. What listeners have not read yet is still sent."""
        self._closed = True
        for queue in self._listeners:
            queue.put_nowait(None)

    async def _listen(self) -> AsyncIterator[str]:
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._listeners.add(queue)
        earlier = [*self._finished, *self._unfinished.values()]
        self._on_listeners(len(self._listeners))
        try:
            yield ": captions\n\n"  # the response begins, even if nobody speaks yet
            for sent in earlier:
                yield sent
            while True:
                try:
                    sent_now = await asyncio.wait_for(queue.get(), _KEEP_ALIVE_S)
                except TimeoutError:
                    yield ": \n\n"
                    continue
                if sent_now is None:
                    if self._closed:
                        yield DONE
                    return
                yield sent_now
        finally:
            self._listeners.discard(queue)
            if not self._closed:
                self._on_listeners(len(self._listeners))

    def _send(self, sent: str) -> None:
        for queue in [*self._listeners]:
            if queue.qsize() < _MAX_UNREAD:
                queue.put_nowait(sent)
            else:
                self._listeners.discard(queue)
                queue.put_nowait(None)

    def _keep(self, sent: str) -> None:
        self._finished.append(sent)
        self._finished_bytes += len(sent)
        while self._finished_bytes > CAPTIONS.bytes:
            self._finished_bytes -= len(self._finished.popleft())


class CaptionBroadcasts:
    """The sessions of this server whose captions others may read."""

    def __init__(self) -> None:
        self._open: dict[str, CaptionBroadcast] = {}

    def open(self, on_listeners: Callable[[int], None]) -> CaptionBroadcast:
        """A new one. See `CaptionBroadcast`."""
        broadcast = CaptionBroadcast(on_listeners)
        self._open[broadcast.id] = broadcast
        return broadcast

    def close(self, broadcast: CaptionBroadcast) -> None:
        """A session has ended."""
        self._open.pop(broadcast.id, None)
        broadcast.close()

    def find(self, id: str, tickets: list[str]) -> CaptionBroadcast | None:
        """The captions with this id, if one of the tickets is theirs."""
        broadcast = self._open.get(id)
        if broadcast is None:
            return None
        fits = any(secrets.compare_digest(ticket.encode(), broadcast.ticket.encode()) for ticket in tickets)
        return broadcast if fits else None
