"""How many drafts a pass should hold: as many as pay for their rows, by what has been measured here.

A pass with k drafts has (k + 1)² rows when every number of accepted drafts has a branch of k noise rows. It commits one
token and, on average, Σ aᵢ more, where aᵢ is how often the first i drafts are all accepted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

_SLOW = 0.02
"""Weight of the newest pass in the running acceptance: a few dozen passes, about three answers."""

_GUESS = 0.4
"""How often a draft is accepted behind the one before it where an adapter does not say."""


def rows_of(slots: int, copied: int = 0) -> int:
    """Rows of a pass with so many drafts and a branch for each outcome."""
    return (slots + 1) ** 2 + copied


class Pace:
    """Chooses the number of drafts.

    Args:
        cost: measured seconds of a pass, by rows.
        most: drafts that the adapter was trained for.
        acceptance: how often the first, the first two, … drafts are all accepted, to begin with.
    """

    def __init__(self, cost: Mapping[int, float], most: int, acceptance: Sequence[float] = ()) -> None:
        self._rows = sorted(cost)
        self._cost = [cost[rows] for rows in self._rows]
        known = list(acceptance)[:most]
        while len(known) < most:
            known.append((known[-1] if known else 1.0) * _GUESS)
        self._acceptance, self._usual = known, tuple(known)

    @property
    def acceptance(self) -> tuple[float, ...]:
        """As it is now."""
        return tuple(self._acceptance)

    def seconds(self, rows: int) -> float:
        """What a pass of so many rows takes, between and beyond those measured in a straight line."""
        place = min(max(bisect_left(self._rows, rows), 1), len(self._rows) - 1)
        if len(self._rows) == 1:
            return self._cost[0]
        (r0, r1), (c0, c1) = self._rows[place - 1 : place + 1], self._cost[place - 1 : place + 1]
        return max(1e-6, c0 + (c1 - c0) * (rows - r0) / (r1 - r0))

    def slots(self, conversations: int = 1, copied: int = 0) -> int:
        """The number of drafts, for each of so many conversations in a pass, that says the most tokens a second."""
        best, speed = 0, 0.0
        for slots in range(len(self._acceptance) + 1):
            tokens = 1 + sum(self._acceptance[:slots])
            here = tokens / self.seconds(conversations * rows_of(slots, copied))
            if here > speed:
                best, speed = slots, here
        return best

    def learn(self, tried: int, accepted: int) -> None:
        """A pass checked `tried` drafts, and so many of them were accepted. What is not tried drifts back to what was
        usual, so that drafts that do not pay on one text are tried again on the next."""
        for slot, old in enumerate(self._acceptance):
            seen = float(slot < accepted) if slot < tried else self._usual[slot]
            self._acceptance[slot] = old + _SLOW * (seen - old)
