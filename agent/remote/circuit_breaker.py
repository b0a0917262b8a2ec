"""Stops asking a server that fails, and tries again after a while."""

from __future__ import annotations

import time
from collections.abc import Callable

_MAX_FAILURES = 2
"""Failures in a row after which the server is left alone. One alone may be chance."""

_FIRST_WAIT_S, _MAX_WAIT_S = 5.0, 120.0
"""How long it is left alone: twice as long after every further failure. Each attempt costs one user the time limit."""


class CircuitBreaker:
    """Counts the failures of one server. All conversations share it.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._failures, self._closed_from = clock, 0, 0.0

    @property
    def allows(self) -> bool:
        """Whether the server may be asked now."""
        return self._clock() >= self._closed_from

    def succeeded(self) -> None:
        """It has answered."""
        self._failures, self._closed_from = 0, 0.0

    def failed(self, retry_after_s: float = 0.0) -> float:
        """It has failed; it asked to be left alone for `retry_after_s`. Returns for how long it will be."""
        if not self.allows:  # a request that was sent earlier
            return 0.0
        self._failures += 1
        doublings = self._failures - _MAX_FAILURES
        wait_s = _FIRST_WAIT_S * 2 ** min(doublings, 10) if doublings >= 0 else 0.0
        wait_s = min(max(wait_s, retry_after_s), _MAX_WAIT_S)
        self._closed_from = self._clock() + wait_s
        return wait_s
