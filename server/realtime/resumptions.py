"""Sessions that clients may come back to, on this replica or on another one."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress

from server.access.admission import wait_silently
from server.realtime.replicated_sessions import ReplicatedSessions
from server.realtime.resumable_session import ResumableSession
from server.shared_store import SharedRecords

_FEWEST = 8
"""Sessions that may wait, at least. Each has the keys and values of its conversation in memory."""


def new_token() -> str:
    """What a client shows to come back."""
    return secrets.token_urlsafe(24)


class Resumptions:
    """The sessions that clients may come back to. Those without a connection wait for a while. They keep their slot
    until another caller needs it.

    Args:
        seconds: how long they wait.
        most: how many may wait. The one that has waited longest then ends.

    Attributes:
        records: of the sessions, with which they survive this process.
    """

    def __init__(self, seconds: float, records: SharedRecords, most: Callable[[], int]) -> None:
        self._seconds, self._most, self.records = seconds, most, ReplicatedSessions(records, seconds)
        self._sessions: dict[str, ResumableSession] = {}
        self._expiries: dict[ResumableSession, asyncio.Task[None]] = {}

    async def keep_records(self) -> None:
        """Keep the records up to date. Runs until cancelled; ends at once if there are none."""
        await self.records.run(self._sessions.values, self._gone_elsewhere)

    def add(self, session: ResumableSession) -> None:
        """A session has begun."""
        self._sessions[session.token] = session
        self.records.change()

    async def park(self, session: ResumableSession) -> None:
        """Keep a session whose connection dropped. It is closed if nobody comes back in time, or if it is dismissed."""
        session.detach()
        self._expiries[session] = asyncio.create_task(self._expire(session))
        session.slot.park()
        while len(self._expiries) > max(_FEWEST, self._most()):
            longest = next(iter(self._expiries))
            self._expiries.pop(longest).cancel()
            await self.end(longest)
        await self.records.save([session])  # now, as its client may come back to another replica at once

    async def take(
        self, token: str, key_name: str, on_wait: Callable[[], Awaitable[None]] = wait_silently
    ) -> ResumableSession | None:
        """The session of a token, for its client to continue; None if there is none. A token is good for its own API
        key and for one return: the next one is new.

        Args:
            on_wait: called before it waits for a slot, if other callers have all of them.

        Raises:
            Refused: none became free.
        """
        session = self._sessions.get(token)
        if session is None or session.slot.meter.key != key_name or not session.conversation.resumable:
            return None
        await session.slot.unpark(on_wait)
        if self._sessions.get(token) is not session:  # it has ended meanwhile, or somebody was quicker
            if session in self._expiries:
                session.slot.park()
            return None
        del self._sessions[token]
        session.token = new_token()
        self.add(session)
        await self._detach(session)
        session.attach()
        await self.records.forget(token)
        return session

    async def end(self, session: ResumableSession) -> None:
        """A session has ended. When the server shuts down, the client may continue it on another one."""
        self._sessions.pop(session.token, None)
        dismissal = session.slot.dismissal
        if session.conversation.resumable:
            if dismissal is not None and dismissal.code == "server_shutting_down":
                await self.records.save([session])
            else:
                await self.records.forget(session.token)
        await session.close()

    async def close(self) -> None:
        """End every session that waits."""
        expiries, self._expiries = self._expiries, {}
        for session, expiry in expiries.items():
            expiry.cancel()
            await self.end(session)

    async def _expire(self, session: ResumableSession) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await session.slot.dismissed.wait()
        if self._expiries.pop(session, None) is not None:
            await self.end(session)

    async def _gone_elsewhere(self, session: ResumableSession) -> None:
        """The client has come back to another replica, where its conversation goes on."""
        if self._sessions.pop(session.token, None) is None:
            return  # it has ended meanwhile
        await self._detach(session)
        await session.close()

    async def _detach(self, session: ResumableSession) -> None:
        """See to it that a session neither waits nor has a connection."""
        if (expiry := self._expiries.pop(session, None)) is not None:
            expiry.cancel()
        else:  # a connection that is half open: the server has not noticed yet that it dropped
            session.displaced.set()
            await session.detached.wait()
