"""The sessions of a replica in the records that all replicas share: a client whose replica dies comes back to another
one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from server.access.keys import digest
from server.realtime.resumable_session import ResumableSession
from server.realtime.session_record import SessionRecord
from server.shared_store import SharedRecords

_INTERVAL_S = 0.5
"""How often records are brought up to date: at most so much of a conversation is lost with its replica."""

_REFRESH_S = 5.0
"""How often a record is written that has not changed, which extends its life."""

_MAX_SESSION_S = 86_400.0
"""How long it is remembered that a session went on elsewhere."""


class ReplicatedSessions:
    """Keeps the records of sessions, and hands them over. Without shared records there are none.

    Args:
        seconds: how long a client may take to come back.
    """

    def __init__(self, records: SharedRecords, seconds: float) -> None:
        self._records, self._keep_s = records, seconds + _REFRESH_S
        self._written: dict[str, tuple[SessionRecord, float]] = {}
        self._changed = asyncio.Event()

    def change(self) -> None:
        """A session has begun, or has a new token: write its record at once."""
        self._changed.set()

    async def run(
        self, sessions: Callable[[], Iterable[ResumableSession]], taken: Callable[[ResumableSession], Awaitable[None]]
    ) -> None:
        """Keep the records up to date. Runs until cancelled; ends at once if there are none.

        Args:
            taken: called with a session whose client has come back to another replica.
        """
        while self._records.exist:
            self._changed.clear()
            for session in await self.save(list(sessions())):
                await taken(session)
            with suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL_S):
                    await self._changed.wait()

    async def save(self, sessions: Iterable[ResumableSession]) -> list[ResumableSession]:
        """Write the records that have changed. Returns the sessions whose clients have gone to another replica."""
        if not self._records.exist:
            return []
        now, due, alive = time.monotonic(), list[tuple[ResumableSession, str, bytes]](), set[str]()
        for session in sessions:
            if not session.conversation.resumable:
                continue
            key, record = _key(session.token), session.conversation.record(session.slot.meter.key)
            alive.add(key)
            written, at = self._written.get(key, (None, 0.0))
            waits = session.detached.is_set()  # its slot is free as soon as its client is found elsewhere
            if waits or record != written or now > at + _REFRESH_S:
                self._written[key] = (record, now)
                due.append((session, key, record.encode()))
        self._written = {key: value for key, value in self._written.items() if key in alive}
        taken = await self._records.call(lambda store: [one for one in due if not store.put(*one[1:], self._keep_s)])
        return [session for session, _, _ in taken or ()]

    async def take(self, token: str, key_name: str) -> SessionRecord | None:
        """The record of the session with a token, for its client to continue here; None if there is none. A token is
        good for its own API key and for one return."""
        key = _key(token)
        known = await self._records.call(lambda store: store.get(key))
        record = SessionRecord.decode(known) if known else None
        if record is None or record.key != key_name:
            return None
        newest = await self._records.call(lambda store: store.take(key, _MAX_SESSION_S))
        return SessionRecord.decode(newest) if newest else None

    async def give_back(self, token: str, record: SessionRecord) -> None:
        """The session cannot go on here: its client may try another replica."""
        key, encoded = _key(token), record.encode()
        await self._records.call(lambda store: store.delete(key))
        await self._records.call(lambda store: store.put(key, encoded, self._keep_s))

    async def forget(self, token: str) -> None:
        """The session has ended, or has a new token."""
        self._written.pop(_key(token), None)
        await self._records.call(lambda store: store.delete(_key(token)))


def _key(token: str) -> str:
    return f"session/{digest(token)}"
