"""How many conversations a server holds at once: as many as it answers in time.

Additive increase, multiplicative decrease, as TCP does with its window (Jacobson 1988; Chiu and Jain 1989) and
Netflix's concurrency-limits with requests. The signal is p95 of the turn latency, over the last turns since a change.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Literal

import numpy as np

MAX_CONVERSATIONS = 64

_TURNS = 20
"""Turns that a decision looks at."""

_DECREASE = 0.75

_MOST_PATIENCE = 16
"""A rise that had to be taken back is tried again after twice as many turns, at most so many times 20."""


class AdaptiveLimit:
    """The limit. Conversations that are open when it falls go on.

    Args:
        start: conversations at first.
        floor: conversations that are always admitted.
        target_ms: p95 of the turn latency that is not to be exceeded.
    """

    def __init__(self, start: int, floor: int, target_ms: float) -> None:
        self.target_ms = target_ms
        self._latencies: deque[float] = deque(maxlen=_TURNS)
        self.restart(start, floor)

    def restart(self, start: int, floor: int) -> None:
        """Start again from a new trial."""
        self._floor, self._patience = floor, 1
        self._last_change: Literal["none", "rise", "fall"] = "none"
        self._set(max(start, floor))

    def _set(self, limit: int) -> None:
        self.current = limit
        self._latencies.clear()
        self._turns_at_limit = 0

    def add_turn(self, latency_ms: float, conversations: int) -> None:
        """Count a turn. The limit may change.

        Args:
            conversations: that are open now. Turns with more than the limit do not count: the limit has fallen already,
                and takes effect when some have ended.
        """
        if conversations > self.current:
            return
        self._latencies.append(latency_ms)
        self._turns_at_limit += conversations == self.current
        if len(self._latencies) < _TURNS:
            return
        if np.quantile(self._latencies, 0.95) > self.target_ms:
            if self.current > self._floor:
                if self._last_change == "rise":
                    self._patience = min(_MOST_PATIENCE, 2 * self._patience)
                self._last_change = "fall"
                self._set(max(self._floor, math.floor(self.current * _DECREASE)))
        elif self._turns_at_limit >= _TURNS * self._patience and self.current < MAX_CONVERSATIONS:
            if self._last_change == "rise":
                self._patience = 1
            self._last_change = "rise"
            self._set(self.current + 1)
