"""How many replicas a service needs: for the conversations that are open, and for what a machine has. Knows nothing of
Ray."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

CORES_PER_REPLICA = 4
"""Of a replica without a GPU. On two cores a language model of 0.5 to 1.5 billion parameters keeps up with one or two
conversations (docs/benchmarks/turns.md); more than four cores make its steps little faster."""

MEMORY_PER_REPLICA = 4 << 30
"""Bytes: what the deployment guide plans for one server."""


@dataclass(frozen=True)
class ReplicaLimits:
    """How many replicas there may be.

    Attributes:
        minimum: also how many there are at the start.
    """

    minimum: int
    maximum: int

    @classmethod
    def parse(cls, text: str) -> ReplicaLimits | None:
        """Limits from `2` or `1-8`; None from `auto`. Raises ValueError."""
        if text == "auto":
            return None
        first, dash, last = text.partition("-")
        if first.isdecimal() and (last.isdecimal() or not dash) and 1 <= int(first) <= int(last or first) <= 10_000:
            return cls(int(first), int(last or first))
        raise ValueError(f"--replicas is auto, a number, or two like 1-8 to scale between, not {text!r}")


def replicas_for(conversations: float, capacity: float, buffer: float) -> int:
    """Replicas that hold the open conversations and a buffer of new ones, at least one.

    Args:
        capacity: conversations that one replica carries.
        buffer: conversations for which there is to be room at any time.
    """
    return max(1, math.ceil((conversations + buffer) / max(1.0, capacity) - 1e-9))


class ScaleInDelay:
    """Keeps what was wanted lately: as many replicas as were wanted at any time within a window.

    The calls of a replica that drains no longer count, and new ones take their place on the others within minutes. A
    decision on the present number alone would drain too many, wait, and start them again.

    Args:
        seconds: length of the window.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._highest: deque[tuple[float, int]] = deque()  # falling numbers: only those that may still be the highest

    def replicas(self, wanted: int, now: float) -> int:
        """How many there should be, when so many are wanted now."""
        while self._highest and self._highest[-1][1] <= wanted:
            self._highest.pop()
        self._highest.append((now, wanted))
        while self._highest[0][0] < now - self._seconds:
            self._highest.popleft()
        return self._highest[0][1]


def replicas_that_fit(cores: float, memory: float, gpus: float) -> int:
    """Replicas for which a machine has room, at least one: one on each GPU, or some cores each.

    Args:
        memory: in bytes.
    """
    places = gpus if gpus >= 1 else cores / CORES_PER_REPLICA
    return max(1, int(min(places, memory / MEMORY_PER_REPLICA)))
