"""What a client can make the server keep: how many bytes, and for how long. One table, and what holds to it.

Limits of a single message are where the message is read, and what a key may use in a day is its own (`access/keys.py`).
"""

from __future__ import annotations

import sys
import time
from collections import OrderedDict
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
    """

    bytes: int
    seconds: float


# Of one connection.
SESSION_CONFIG = Budget(256 << 10, 3600.0)
"""As JSON: 128 tools of 2 KiB. Every change copies and checks all of it on the event loop, which takes about 10 ms at
this size. A session lasts an hour, unless `--max-session-minutes` says otherwise."""

OUTBOX = Budget(32 << 20, 3600.0)
"""Events for a client that does not read: several minutes of audio. It is disconnected then."""

TOOL_LISTS = Budget(1 << 20, 3600.0)
"""Lists of tools and approvals, which a client can retrieve. Each new configuration of a server makes another list."""

# Of one request.
WEBHOOK = Budget(64 << 10, 30.0)
"""Carriers send a few hundred bytes."""

JSON_BODY = Budget(4 << 20, 300.0)
"""32,000 tokens of text are about 150 kB."""

UPLOAD = Budget((25 << 20) + (64 << 10), 300.0)
"""OpenAI's limit for a recording, and room for the fields next to it. 25 MiB take 210 s at 1 Mbit/s."""

# Of one API key, or of all clients without one.
CLIENT_SECRETS = Budget(16 << 20, 7200.0)
"""As JSON, with the sessions that they open: thousands of usual ones. The oldest end first."""

STORED_RESPONSES = Budget(64 << 20, 86_400.0)
"""With the conversations up to them, each of which counts in full: those that continue each other share their messages,
but either may be deleted first."""


@dataclass(frozen=True)
class _Entry(Generic[V]):
    value: V
    owner: str
    size: int
    expires_at: float


class Kept(Generic[V]):
    """Values by name, each of an owner, within a budget: new values of an owner replace the oldest ones.

    Args:
        clock: seconds; Unix time or monotonic.
    """

    def __init__(self, budget: Budget, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget, self._clock = budget, clock
        self._entries: OrderedDict[str, _Entry[V]] = OrderedDict()

    def put(self, name: str, value: V, size: int, owner: str = "", seconds: float | None = None) -> None:
        """Keep a value, unless it alone exceeds the budget.

        Args:
            size: bytes of memory that it takes.
            seconds: how long, if not for as long as the budget allows.
        """
        now = self._clock()
        self._entries.pop(name, None)
        for one in [one for one, entry in self._entries.items() if entry.expires_at <= now]:
            del self._entries[one]
        mine = [(one, entry.size) for one, entry in self._entries.items() if entry.owner == owner]
        left = self._budget.bytes - size - sum(taken for _, taken in mine)
        for one, taken in mine:
            if left >= 0:
                break
            del self._entries[one]
            left += taken
        if left >= 0:
            self._entries[name] = _Entry(value, owner, size, now + min(self._budget.seconds, seconds or float("inf")))

    def get(self, name: str) -> V | None:
        """The value; None if it is not kept, or not any more."""
        entry = self._entries.get(name)
        return None if entry is None or entry.expires_at <= self._clock() else entry.value

    def remove(self, name: str) -> None:
        """Forget a value."""
        self._entries.pop(name, None)


def memory(value: Any) -> int:
    """Bytes of memory that a text, or JSON as Python has it, takes. What occurs twice counts twice."""
    size = sys.getsizeof(value)
    if isinstance(value, Mapping):
        size += sum(memory(key) + memory(part) for key, part in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        size += sum(map(memory, value))
    return size
