"""What the replicas of a service tell one another through the records that they share: what each key has open, for its
own limit, and that they live. So the death of one is noticed, with the conversations that it had."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from server.shared_store import RecordStore, SharedRecords

T = TypeVar("T")

_log = logging.getLogger("rejoinder.server")

_KEYS, _REPLICAS = "conversations/", "replica/"
"""What the records of open conversations and of living replicas begin with."""

_INTERVAL_S, _LEASE_S = 2.0, 6.0
"""How often a replica repeats what it has open, and how long that counts: so long after the death of a replica, too."""

_DEAD_AFTER_S = 10.0
"""After this silence a replica counts as dead. One whose event loop hangs for longer is ended by its watchdog."""

_REMEMBERED_S = 3600.0
"""How long the others have to notice. Where all replicas end at once, the next one to start does."""


class SharedConversations:
    """Each replica writes down what its keys have open, before it admits another conversation, and then adds up what
    all have written. So of two that are admitted at the same time at least one sees the other.

    Args:
        by_key: conversations that each key with a limit has open on this replica.
        by_kind: open conversations of this replica, by kind. Called from another thread.
        clock: seconds, monotonic.

    Attributes:
        lost: conversations of replicas that died, by kind. The clients of some come back (`Resumptions`).
    """

    def __init__(
        self,
        records: SharedRecords,
        by_key: Callable[[], Counter[str]],
        by_kind: Callable[[], Mapping[str, int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._records, self._by_key, self._by_kind, self._clock = records, by_key, by_kind, clock
        self._name = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self._written, self._changed, self._writing = False, asyncio.Event(), asyncio.Lock()
        self._beats = 0
        self._seen: dict[str, tuple[bytes, float]] = {}
        self.lost = Counter[str]({"realtime": 0, "phone": 0})

    def change(self) -> None:
        """A conversation has ended: tell the others soon."""
        self._changed.set()

    async def elsewhere(self, key: str) -> int:
        """Conversations that a key has open on other replicas; 0 if the records cannot be used now."""
        found = await self._write_and(lambda store: store.scan(_KEYS)) or {}
        return sum(json.loads(value).get(key, 0) for name, value in found.items() if name != _KEYS + self._name)

    async def run(self) -> None:
        """Keep the records of this replica up to date. Runs until cancelled, and then says that this replica has ended
        in order."""
        try:
            while True:
                self._changed.clear()
                await self._write_and(self.beat)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_INTERVAL_S):
                        await self._changed.wait()
        finally:
            await self._records.call(lambda store: store.delete(_KEYS + self._name, _REPLICAS + self._name))

    async def _write_and(self, then: Callable[[RecordStore], T]) -> T | None:
        """Write what keys have open here, and then use the records for more. None while they cannot be used."""
        async with self._writing:  # an older count must not overwrite a newer one
            own = self._by_key()

            def work(store: RecordStore) -> T:
                if own:
                    store.put(_KEYS + self._name, json.dumps(own).encode(), _LEASE_S)
                elif self._written:
                    store.delete(_KEYS + self._name)
                self._written = bool(own)
                return then(store)

            return await self._records.call(work)

    def beat(self, store: RecordStore) -> None:
        """Say that this replica lives, and report those that have died. Raises StoreUnavailable."""
        self._beats += 1
        state = {"beat": self._beats, **self._by_kind()}
        store.put(_REPLICAS + self._name, json.dumps(state).encode(), _REMEMBERED_S)
        now, found = self._clock(), store.scan(_REPLICAS)
        found.pop(_REPLICAS + self._name, None)
        self._seen = {
            key: seen if (seen := self._seen.get(key)) is not None and seen[0] == value else (value, now)
            for key, value in found.items()
        }
        for key, (_, since) in self._seen.items():
            if now > since + _DEAD_AFTER_S and (last := store.take(key, _REMEMBERED_S)) is not None:
                self._report(key.removeprefix(_REPLICAS), json.loads(last))

    def _report(self, name: str, last: Mapping[str, int]) -> None:
        realtime, phone = last["realtime"], last["phone"]
        self.lost.update(realtime=realtime, phone=phone)
        _log.error(
            "the replica %s has died with %d Realtime conversations, whose clients may come back, and %d phone calls, "
            "which are lost",
            name,
            realtime,
            phone,
        )
