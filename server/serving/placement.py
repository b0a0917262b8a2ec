"""Where a new conversation goes: the power of two choices, among replicas that have room. Knows nothing of Ray.

Load that is read now and then admits two calls to the last slot. So a replica is asked at the moment of the choice, and
what this router has sent it counts from the choice on.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

ReplicaKey = TypeVar("ReplicaKey", bound=Hashable)

_LOST_S = 30.0
"""A choice that was not followed by a request within this time does not count any more: its caller had gone."""


@dataclass
class _Placed(Generic[ReplicaKey]):
    replica: ReplicaKey
    at: float
    sent: bool = False


class Placement(Generic[ReplicaKey]):
    """Chooses a replica for each conversation, and counts those that it has placed.

    Args:
        shuffle: brings replicas into a random order, in place.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        shuffle: Callable[[list[ReplicaKey]], None] = random.shuffle,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shuffle, self._clock = shuffle, clock
        self._placed: dict[str, _Placed[ReplicaKey]] = {}

    async def choose(
        self,
        conversation: str,
        replicas: Iterable[ReplicaKey],
        capacity: Callable[[ReplicaKey], int],
        ongoing: Callable[[ReplicaKey], Awaitable[int]],
    ) -> ReplicaKey | None:
        """A replica with room, the less loaded of two; None if all are full. Two at a time are asked, until one has
        room.

        Args:
            conversation: an id. Its earlier choice, which refused it, does not count any more.
            capacity: conversations that a replica admits.
            ongoing: what a replica is occupied with now. One that raises is passed over.
        """
        self.ended(conversation)
        self._forget_lost()
        order = list(replicas)
        self._shuffle(order)
        for start in range(0, len(order), 2):
            pair = order[start : start + 2]
            counts = await asyncio.gather(*map(ongoing, pair), return_exceptions=True)
            free = {
                replica: capacity(replica) - self._occupied(replica, count)
                for replica, count in zip(pair, counts, strict=True)
                if not isinstance(count, BaseException)
            }
            best = max(free, key=lambda replica: free[replica], default=None)
            if best is not None and free[best] > 0:
                self._placed[conversation] = _Placed(best, self._clock())
                return best
        return None

    def sent(self, conversation: str) -> None:
        """The replica has taken the conversation."""
        if conversation in self._placed:
            self._placed[conversation].sent = True

    def ended(self, conversation: str) -> None:
        """The conversation is over, or was not taken."""
        self._placed.pop(conversation, None)

    def _occupied(self, replica: ReplicaKey, ongoing: int) -> int:
        """What a replica reports and what is on its way to it; at least what this router has placed there."""
        placed = [one for one in self._placed.values() if one.replica == replica]
        return max(ongoing + sum(not one.sent for one in placed), len(placed))

    def _forget_lost(self) -> None:
        before = self._clock() - _LOST_S
        for conversation in [key for key, one in self._placed.items() if not one.sent and one.at < before]:
            del self._placed[conversation]
