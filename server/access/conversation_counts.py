"""How many conversations each key has open on all replicas, for its own limit. In the records that replicas share."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from server.shared_store import RecordStore, StoreUnavailable

_log = logging.getLogger("rejoinder.server")

_PREFIX = "conversations/"

_INTERVAL_S, _LEASE_S = 2.0, 6.0
"""How often a replica repeats what it has open, and how long that counts: so long after the death of a replica, too."""


class ConversationCounts:
    """Each replica writes down what its keys have open, before it admits another conversation, and then adds up what
    all have written. So of two that are admitted at the same time at least one sees the other.

    Args:
        store: the shared records.
        own: conversations that each key with a limit has open on this replica.
    """

    def __init__(self, store: RecordStore, own: Callable[[], Counter[str]]) -> None:
        self._store, self._own = store, own
        self._record = f"{_PREFIX}{secrets.token_hex(8)}"
        self._written = False
        self._changed = asyncio.Event()
        self._writing = asyncio.Lock()

    def change(self) -> None:
        """A conversation has ended: tell the others soon."""
        self._changed.set()

    async def elsewhere(self, key: str) -> int:
        """Conversations that a key has open on other replicas; 0 if the records cannot be used now."""
        try:
            await self._write()
            found = await asyncio.to_thread(self._store.scan, _PREFIX)
        except StoreUnavailable as error:
            _log.warning("%s; limits of keys count the conversations of one replica", error)
            return 0
        return sum(json.loads(value).get(key, 0) for name, value in found.items() if name != self._record)

    async def run(self) -> None:
        """Keep the record of this replica up to date. Runs until cancelled."""
        try:
            while True:
                self._changed.clear()
                with suppress(StoreUnavailable):
                    await self._write()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_INTERVAL_S):
                        await self._changed.wait()
        finally:
            with suppress(StoreUnavailable):
                self._store.delete(self._record)

    async def _write(self) -> None:
        async with self._writing:  # an older count must not overwrite a newer one
            if own := self._own():
                await asyncio.to_thread(self._store.put, self._record, json.dumps(own).encode(), _LEASE_S)
                self._written = True
            elif self._written:
                await asyncio.to_thread(self._store.delete, self._record)
                self._written = False
