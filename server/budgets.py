"""What a client can make the server keep: how many bytes, and for how long. One table, and what holds to it.

Limits of a single message are where the message is read, and what a key may use in a day is its own (`access/keys.py`).
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

V = TypeVar("V")


@dataclass(frozen=True)
class Budget:
    """What one owner may have.

    Attributes:
        bytes: of memory, all values of the owner together.
        seconds: how long a value is kept.
        total: bytes of all owners together; None where their number is limited.
    """

    bytes: int
    seconds: float
    total: int | None = None


# Of one conversation. The server admits as many as `--max-conversations` says.
CONVERSATION = Budget(1 << 20, 3600.0)
"""Its items. A client's items are refused once it is full; what is said replaces the oldest items. An hour of talk
takes about 200 kB. It ends after an hour, unless `--max-session-minutes` says otherwise."""

SESSION_CONFIG = Budget(256 << 10, CONVERSATION.seconds)
"""As JSON: 128 tools of 2 KiB. Every change copies and checks all of it on the event loop, which takes about 10 ms at
this size."""

OUTBOX = Budget(32 << 20, 60.0)
"""Events for a client that does not read: several minutes of audio. It is disconnected then, or when one of them has
not left for so long."""

TOOL_LISTS = Budget(1 << 20, CONVERSATION.seconds)
"""Lists of tools and approvals, which a client can retrieve. Each new configuration of a server makes another list."""

CAPTIONS = Budget(2 << 20, CONVERSATION.seconds)
"""What listeners who come late get of a session: an hour of fast talk as JSON. The oldest turns are forgotten first."""

# Of one request; the total is of those that are arriving.
WEBHOOK = Budget(64 << 10, 30.0, 4 << 20)
"""Carriers send a few hundred bytes."""

JSON_BODY = Budget(4 << 20, 300.0, 64 << 20)
"""32,000 tokens of text are about 150 kB."""

UPLOAD = Budget((25 << 20) + (64 << 10), 300.0)
"""OpenAI's limit for a recording, and room for the fields next to it. 25 MiB take 210 s at 1 Mbit/s. Eight are
read at a time."""

# Of one API key, or of all clients without one.
CLIENT_SECRETS = Budget(16 << 20, 7200.0, 64 << 20)
"""As JSON, with the sessions that they open: thousands of usual ones. The oldest end first."""

STORED_RESPONSES = Budget(64 << 20, 86_400.0, 256 << 20)
"""With the conversations up to them, each of which counts in full: those that continue each other share their messages,
but either may be deleted first."""

BATCH_FILES = Budget(256 << 20, 30 * 86_400.0, 2 << 30)
"""On the disk: uploaded files and results of batches. A line of 10,000 classifications is about 500 bytes, with its
result. What does not fit is refused; nothing makes room for it."""

BATCH_UPLOAD = Budget((64 << 20) + (64 << 10), 300.0, 256 << 20)
"""One file of requests, and room for the fields next to it. More than a MiB of it is on the disk while it arrives."""

# Of all calls together.
ANNOUNCEMENTS = Budget(16 << 20, 86_400.0)
"""Greetings and the like, as audio: half an hour in the encoding of most carriers."""

_PURGE_INTERVAL_S = 10.0
"""How often values are dropped whose time is over. Nobody gets them before that either."""


@dataclass(frozen=True)
class _Entry(Generic[V]):
    value: V
    owner: str
    size: int
    expires_at: float


class Kept(Generic[V]):
    """Values by name, each of an owner, within a budget. New values of an owner replace its oldest ones; if all owners
    together have too much, the one that has most loses its oldest.

    Args:
        clock: seconds; Unix time or monotonic.
    """

    def __init__(self, budget: Budget, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget, self._clock = budget, clock
        self._entries: dict[str, _Entry[V]] = {}
        self._names: dict[str, dict[str, None]] = {}  # of each owner, the oldest first
        self._sizes = Counter[str]()
        self._purged_at = clock()

    def put(self, name: str, value: V, size: int, owner: str = "", seconds: float | None = None) -> None:
        """Keep a value, unless it alone exceeds the budget.

        Args:
            size: bytes of memory that it takes.
            seconds: how long, if not for as long as the budget allows.
        """
        self.remove(name)
        self._purge()
        if size > self._budget.bytes:
            return
        while self._sizes[owner] + size > self._budget.bytes:
            self._remove_oldest(owner)
        while self._budget.total is not None and self._sizes.total() + size > self._budget.total:
            self._remove_oldest(max(self._sizes, key=self._sizes.__getitem__))
        expires_at = self._clock() + min(self._budget.seconds, seconds or float("inf"))
        self._entries[name] = _Entry(value, owner, size, expires_at)
        self._names.setdefault(owner, {})[name] = None
        self._sizes[owner] += size

    def get(self, name: str, owner: str | None = None) -> V | None:
        """The value; None if it is not kept, or not any more, or belongs to another owner than is given."""
        entry = self._entries.get(name)
        if entry is None or entry.expires_at <= self._clock() or owner not in (None, entry.owner):
            return None
        return entry.value

    def remove(self, name: str) -> None:
        """Forget a value."""
        entry = self._entries.pop(name, None)
        if entry is not None:
            del self._names[entry.owner][name]
            self._sizes[entry.owner] -= entry.size
            if not self._names[entry.owner]:
                del self._names[entry.owner], self._sizes[entry.owner]

    def forget(self, owner: str) -> list[str]:
        """Forget all values of an owner. Returns their names."""
        names = list(self._names.get(owner, ()))
        for name in names:
            self.remove(name)
        return names

    def _remove_oldest(self, owner: str) -> None:
        self.remove(next(iter(self._names[owner])))

    def _purge(self) -> None:
        now = self._clock()
        if now >= self._purged_at + _PURGE_INTERVAL_S:
            self._purged_at = now
            for name in [name for name, entry in self._entries.items() if entry.expires_at <= now]:
                self.remove(name)


def memory(value: Any) -> int:
    """Bytes of memory that a text, or JSON as Python has it, takes. What occurs twice counts twice."""
    size = sys.getsizeof(value)
    if isinstance(value, Mapping):
        size += sum(memory(key) + memory(part) for key, part in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        size += sum(map(memory, value))
    return size
