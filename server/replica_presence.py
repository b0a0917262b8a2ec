"""Notices the death of another replica, and says how many conversations it had."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from server.access.admission import Admission
from server.observability.metrics import Reading
from server.shared_store import RecordStore, StoreUnavailable

_log = logging.getLogger("rejoinder.server")

_INTERVAL_S = 2.0
"""How often a replica says that it lives."""

_DEAD_AFTER_S = 10.0
"""After this silence it counts as dead. A replica whose event loop hangs for longer is ended by its watchdog anyway."""

_REMEMBERED_S = 3600.0
"""How long the others have to notice. Where all replicas end at once, the next one to start does."""

_PREFIX = "replica/"


class Presence:
    """Tells the other replicas through the shared records that this one lives, and watches them.

    Args:
        clock: seconds, monotonic.

    Attributes:
        lost: conversations of replicas that died, by kind. The clients of some come back (`SharedSessions`).
    """

    def __init__(self, store: RecordStore, admission: Admission, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._admission, self._clock = store, admission, clock
        self._key = f"{_PREFIX}{socket.gethostname()}-{secrets.token_hex(4)}"
        self._beats = 0
        self._seen: dict[str, tuple[bytes, float]] = {}
        self.lost = Counter[str]({"realtime": 0, "phone": 0})

    async def run(self) -> None:
        """Runs until cancelled, and then says that this replica has ended in order."""
        try:
            while True:
                with suppress(StoreUnavailable):
                    await asyncio.to_thread(self.beat)
                await asyncio.sleep(_INTERVAL_S)
        finally:
            with suppress(StoreUnavailable):
                self._store.delete(self._key)

    def beat(self) -> None:
        """Say that this replica lives, and report those that have died. Raises StoreUnavailable."""
        self._beats += 1
        kinds = Counter(slot.kind for slot in tuple(self._admission.slots))
        state = {"beat": self._beats, "realtime": kinds["realtime"], "phone": kinds["phone"]}
        self._store.put(self._key, json.dumps(state).encode(), _REMEMBERED_S)
        now, found = self._clock(), self._store.scan(_PREFIX)
        found.pop(self._key, None)
        self._seen = {
            key: seen if (seen := self._seen.get(key)) is not None and seen[0] == value else (value, now)
            for key, value in found.items()
        }
        for key, (_, since) in self._seen.items():
            if now > since + _DEAD_AFTER_S and (last := self._store.take(key, _REMEMBERED_S)) is not None:
                self._report(key.removeprefix(_PREFIX), last)

    def readings(self) -> list[Reading]:
        """For the metrics."""
        help_text = "Open conversations of other replicas when they died."
        return [Reading("dead_replica_conversations_total", help_text, lambda: dict(self.lost), "kind")]

    def _report(self, name: str, last: bytes) -> None:
        state = json.loads(last)
        realtime, phone = int(state["realtime"]), int(state["phone"])
        self.lost.update(realtime=realtime, phone=phone)
        _log.error(
            "the replica %s has died with %d Realtime conversations, whose clients may come back, and %d phone calls, "
            "which are lost",
            name,
            realtime,
            phone,
        )
