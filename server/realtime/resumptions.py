"""Sessions that clients may come back to, on this replica or on another one: replicas share their records."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from server.access.admission import wait_silently
from server.access.keys import digest
from server.realtime.resumable_session import ResumableSession
from server.realtime.session_record import SessionRecord
from server.shared_store import SharedRecords

_log = logging.getLogger("rejoinder.server")

_PREFIX = "session/"
"""Of the names of records."""

_FEWEST = 8
"""Sessions that may wait, at least. Each has the keys and values of its conversation in memory."""

_INTERVAL_S = 0.5
"""How often records are brought up to date: at most so much of a conversation is lost with its replica."""

_REFRESH_S = 5.0
"""How often a record is written that has not changed, which extends its life."""

_MAX_SESSION_S = 86_400.0
"""How long it is remembered that a session went on elsewhere."""


def new_token() -> str:
    """What a client shows to come back."""
    return secrets.token_urlsafe(24)


class Resumptions:
    """The sessions that clients may come back to. Those without a connection wait for a while. They keep their slot
    until another caller needs it.

    Args:
        seconds: how long they wait.
        records: where sessions survive this process.
        most: how many may wait. The one that has waited longest then ends.
    """

    def __init__(self, seconds: float, records: SharedRecords, most: Callable[[], int]) -> None:
        self._seconds, self._records, self._most = seconds, records, most
        self._sessions: dict[str, ResumableSession] = {}
        self._expiries: dict[ResumableSession, asyncio.Task[None]] = {}
        self._added = asyncio.Event()

    def add(self, session: ResumableSession) -> None:
        """A session has begun, or has a new token."""
        self._sessions[session.token] = session
        session.recorded = None
        self._added.set()

    async def park(self, session: ResumableSession) -> None:
        """Keep a session whose connection dropped. It is closed if nobody comes back in time, or if it is dismissed."""
        session.detach()
        if session.displaced.is_set():
            return  # its client has come back in the meantime
        self._expiries[session] = asyncio.create_task(self._expire(session))
        session.slot.park()
        while len(self._expiries) > max(_FEWEST, self._most()):
            longest = next(iter(self._expiries))
            self._expiries.pop(longest).cancel()
            await self.end(longest)
        await self._record([session])  # now, as its client may come back to another replica at once

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
        claimed = await self._records.call(lambda store: store.claim(_key(token), _MAX_SESSION_S))
        if session.token not in self._sessions:
            return None  # its old connection ended it in the meantime
        if claimed is False:  # another replica was quicker
            del self._sessions[session.token]
            await self._forget(session.token)
            await session.close()
            return None
        session.attach()
        return session

    async def take_record(self, token: str, key_name: str) -> SessionRecord | None:
        """The record of a session of another replica, for its client to continue here; None if there is none. The token
        is good for its own API key and for one return."""
        key = _key(token)
        known = await self._records.call(lambda store: store.get(key))
        record = SessionRecord.decode(known) if known else None
        if record is None or record.key != key_name:
            return None
        newest = await self._records.call(lambda store: store.take(key, _MAX_SESSION_S))
        return SessionRecord.decode(newest) if newest else None

    async def give_back(self, token: str, record: SessionRecord) -> None:
        """A session of another replica cannot go on here: its client may try a third one."""
        key, encoded = _key(token), record.encode()
        await self._forget(token)
        await self._records.call(lambda store: store.put(key, encoded, self._seconds + _REFRESH_S))

    async def end(self, session: ResumableSession) -> None:
        """A session has ended. When the server shuts down, the client may continue it on another one."""
        session.detached.set()
        if self._sessions.pop(session.token, None) is None:
            return  # its client has come back to another replica, and it is closed for that
        dismissal = session.slot.dismissal
        try:
            if dismissal is not None and dismissal.code == "server_shutting_down":
                await self._record([session])
            elif session.conversation.resumable:
                await self._forget(session.token)
        finally:  # its slot is free, whatever becomes of its record
            await session.close()

    async def close(self) -> None:
        """End every session that waits."""
        expiries, self._expiries = self._expiries, {}
        for session, expiry in expiries.items():
            expiry.cancel()
            await self.end(session)

    async def keep_records(self) -> None:
        """Keep the records up to date, and close the sessions whose clients have come back to another replica. Runs
        until cancelled; ends at once if replicas share nothing."""
        while self._records.exist:
            self._added.clear()
            for session, token in await self._record(list(self._sessions.values())):
                if self._sessions.get(token) is session:  # it has neither ended nor been taken here meanwhile
                    del self._sessions[token]
                    await self._detach(session)
                    await session.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL_S):
                    await self._added.wait()

    async def _record(self, sessions: Iterable[ResumableSession]) -> list[tuple[ResumableSession, str]]:
        """Write the records that have changed. Returns the sessions whose tokens were taken, with these tokens."""
        now, due = time.monotonic(), list[tuple[ResumableSession, str, bytes]]()
        for session in sessions:
            if not self._records.exist or not session.conversation.resumable:
                continue
            record = session.conversation.record(session.slot.meter.key)
            written, written_at = session.recorded or (None, 0.0)
            waits = session.detached.is_set()  # its slot is free as soon as its client is found elsewhere
            if waits or record != written or now > written_at + _REFRESH_S:
                session.recorded = (record, now)
                try:
                    due.append((session, session.token, record.encode()))
                except ValueError:  # the others are recorded nevertheless
                    _log.exception("a session cannot be recorded, so it is lost if this replica dies")
        seconds = self._seconds + _REFRESH_S
        taken = await self._records.call(
            lambda store: [
                (session, token) for session, token, record in due if not store.put(_key(token), record, seconds)
            ]
        )
        return taken or []

    async def _forget(self, token: str) -> None:
        await self._records.call(lambda store: store.delete(_key(token)))

    async def _expire(self, session: ResumableSession) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await session.slot.dismissed.wait()
        if self._expiries.pop(session, None) is not None:
            await self.end(session)

    async def _detach(self, session: ResumableSession) -> None:
        """See to it that a session neither waits nor has a connection."""
        if (expiry := self._expiries.pop(session, None)) is not None:
            expiry.cancel()
        else:  # a connection that is half open: the server has not noticed yet that it dropped
            session.displaced.set()
            await session.detached.wait()


def _key(token: str) -> str:
    return _PREFIX + digest(token)
