"""What a forward pass costs: seconds by number of rows, measured at the start and while conversations run."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

_TIME_WEIGHT = 0.1
"""Weight of the newest step in the measured time."""


class StepCost:
    """Seconds of a forward pass.

    Args:
        seconds: measured, by number of rows. Updated by `record`.
    """

    def __init__(self, seconds: Mapping[int, float]) -> None:
        self._measured = dict(seconds)
        self._rows = sorted(seconds)
        self._seconds = self._monotonic()

    def seconds(self, rows: int) -> float:
        """Expected seconds of a forward pass with this many rows: interpolated between measured sizes, extrapolated
        beyond them at least as steeply as the overall slope."""
        if len(self._rows) == 1 or rows <= self._rows[0]:
            return self._seconds[0]
        points = list(zip(self._rows, self._seconds, strict=True))
        for (r0, s0), (r1, s1) in itertools.pairwise(points):
            if rows <= r1:
                return s0 + (s1 - s0) * (rows - r0) / (r1 - r0)
        (first, low), (before, middle), (last, high) = points[0], points[-2], points[-1]
        slope = max((high - low) / (last - first), (high - middle) / (last - before))
        return high + slope * (rows - last)

    def record(self, rows: int, seconds: float) -> None:
        """Record how long a forward pass took. Processors slow down, and other work competes for their cores. Numbers
        of rows that were not measured at the start are ignored."""
        if rows in self._measured:
            self._measured[rows] += _TIME_WEIGHT * (seconds - self._measured[rows])
            self._seconds = self._monotonic()

    def _monotonic(self) -> list[float]:
        """Seconds by number of rows, non-decreasing: where more rows seem to take less time, that is noise."""
        return list(itertools.accumulate((self._measured[rows] for rows in self._rows), max))
