"""A token bucket: limits how often something happens, and lets bursts pass."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """Allows `per_second` on average and `burst` at once.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._burst, self._clock = per_second, burst, clock
        self._tokens, self._filled_at = burst, clock()

    def take(self, count: float = 1) -> float:
        """Take some. Returns how many seconds to wait before acting on it: 0 unless too many were taken."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._per_second) - count
        self._filled_at = now
        return max(0.0, -self._tokens / self._per_second)
