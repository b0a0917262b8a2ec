"""How many conversations a server holds at once: as many as it answers in time.

Additive increase, multiplicative decrease, as TCP does with its window (Jacobson 1988; Chiu and Jain 1989) and
Netflix's concurrency-limits with requests. The signal is p95 of the turn latency, over the turns since the last change.
"""

from __future__ import annotations

import math
from collections import deque

from voice.turn_metrics import percentile

MAX_CONVERSATIONS = 64

_TURNS = 20
"""Turns after which the limit may rise, and that a decision looks at."""

_FEWEST_TURNS = 10
"""Turns after which the limit may fall."""

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
        self.target_ms, self._patience = target_ms, 1
        self._latencies: deque[float] = deque(maxlen=_TURNS)
        self.restart(start, floor)

    def restart(self, start: int, floor: int) -> None:
        """Go by a new trial."""
        self.current, self._floor = max(start, floor), floor
        self._forget()

    def _forget(self) -> None:
        self._latencies.clear()
        self._turns, self._was_reached = 0, False

    def reached(self) -> None:
        """So many conversations are open."""
        self._was_reached = True

    def add_turn(self, latency_ms: float) -> None:
        """Take note of a turn. The limit may change."""
        self._latencies.append(latency_ms)
        self._turns += 1
        if self._turns < _FEWEST_TURNS:
            return
        in_time = percentile(self._latencies, 0.95) <= self.target_ms
        if not in_time and self.current > self._floor:
            self.current = max(self._floor, math.floor(self.current * _DECREASE))
            self._patience = min(_MOST_PATIENCE, 2 * self._patience)
            self._forget()
        elif in_time and self._was_reached and self._turns >= _TURNS * self._patience:
            self.current = min(MAX_CONVERSATIONS, self.current + 1)
            self._forget()
