"""How long a forward pass takes, by its number of rows: measured at the start, and followed while conversations run, as
processors slow down and other work competes for cores and memory."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

_SPEED_WEIGHT = 0.3
"""Weight of the newest pass in the speed that all numbers of rows share."""

_OWN_WEIGHT, _SELDOM_WEIGHT, _FORGETTING = 0.02, 0.4, 0.001
"""Weight of the newest pass in what its number of rows takes beside that; the same if there has been none for _SELDOM
passes; and how fast that returns to the time at the start, so that a wrong time does not last because it keeps such
passes from being run."""

_SELDOM, _DUE = 8, 32
"""Passes without one of about as many rows, after which its time counts as seldom measured, and as due."""

_MAX_SLOWDOWN = 1.5
"""A pass that took longer than this many times what was expected was interrupted, and counts as this long. If the
processor has become slower, the expectation follows within a few dozen passes."""


class PassTimes:
    """Expected seconds of a forward pass.

    Args:
        measured: at the start, by number of rows; at least one.
    """

    def __init__(self, measured: Mapping[int, float]) -> None:
        self._sizes = sorted(measured)
        self._initial = [measured[size] for size in self._sizes]
        self._speed, self._own, self._ages = 1.0, list(self._initial), [0] * len(self._sizes)
        """The expected time is the product of the first, which all numbers share, and each one's own."""
        self._expected, self._known = self._monotonic(), dict[int, float]()

    def seconds(self, rows: int) -> float:
        """With this many rows: interpolated between measured numbers, extrapolated beyond them at least as steeply as
        the overall slope."""
        if rows not in self._known:  # drafting asks for the same ones again and again
            self._known[rows] = self._compute(rows)
        return self._known[rows]

    def _compute(self, rows: int) -> float:
        sizes, times = self._sizes, self._expected
        if len(sizes) == 1 or rows <= sizes[-1]:
            return self._between(times, rows)
        slope = max((times[-1] - times[0]) / (sizes[-1] - sizes[0]), (times[-1] - times[-2]) / (sizes[-1] - sizes[-2]))
        return times[-1] + slope * (rows - sizes[-1])

    def is_due(self, rows: int) -> bool:
        """Whether no pass with about this many rows has been recorded for a while."""
        return any(age >= _DUE and near for age, near in zip(self._ages, self._nearness(rows), strict=True))

    def record(self, rows: int, seconds: float) -> None:
        """Record how long a pass took. Fewer or more rows than were measured at the start are ignored."""
        if not self._sizes[0] <= rows <= self._sizes[-1]:
            return
        seconds, own = min(seconds, _MAX_SLOWDOWN * self.seconds(rows)), self._between(self._own, rows)
        self._speed += _SPEED_WEIGHT * (seconds / own - self._speed)
        excess, scale = seconds / (self._speed * own) - 1, own / self._between(self._initial, rows)
        nearness = self._nearness(rows)
        for n, near in enumerate(nearness):
            if near:
                weight = _OWN_WEIGHT if self._ages[n] < _SELDOM else _SELDOM_WEIGHT
                self._own[n] *= 1 + near * weight * excess
            else:
                self._own[n] += _FORGETTING * (scale * self._initial[n] - self._own[n])
            self._ages[n] = 0 if near else self._ages[n] + 1
        newest = max(n for n, near in enumerate(nearness) if near)
        for n, age in enumerate(self._ages[:newest]):
            if age >= _SELDOM:  # fewer rows do not take longer, whatever they took a while ago
                self._own[n] = min(self._own[n], self._own[newest])
        self._expected, self._known = self._monotonic(), {}

    def _between(self, times: list[float], rows: int) -> float:
        """A time for each measured number, interpolated."""
        nearness = self._nearness(rows)
        return sum(near * seconds for near, seconds in zip(nearness, times, strict=True))

    def _nearness(self, rows: int) -> list[float]:
        """How much each measured number counts for this one: 1 if they are the same, and together 1."""
        sizes = self._sizes
        rows = min(max(rows, sizes[0]), sizes[-1])
        above = next(n for n, size in enumerate(sizes) if rows <= size)
        share = (sizes[above] - rows) / (sizes[above] - sizes[above - 1]) if above else 0.0
        return [1 - share if n == above else share if n == above - 1 else 0.0 for n in range(len(sizes))]

    def _monotonic(self) -> list[float]:
        """Non-decreasing times: where more rows seem to take less time, that is noise."""
        return [self._speed * own for own in itertools.accumulate(self._own, max)]
