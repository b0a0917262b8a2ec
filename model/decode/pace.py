"""How many drafts a pass should hold: as many as pay for their rows, by what has been measured here.

A pass with k drafts has (k + 1)² rows when every number of accepted drafts has a branch of k noise rows. It commits one
token and, on average, Σ aᵢ more, where aᵢ is how often the first i drafts are all accepted.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

_SLOW, _TRUSTED = 0.02, 10
"""Weight of the newest pass in the running acceptance: a few dozen passes, about three answers. At first it is more:
what is said to be usual counts as so many passes, because it was seen on another text."""

_WORTH = 1.25
"""Drafts must promise so much more speed than none. What a pass costs is timed on a quiet machine; beside the other
stages of a turn drafts cost more, and a first clause is a few tokens: over 16 spoken turns it was there after 86 and 96
ms (p50, two runs) with this, after 109 and 122 with 1.1, though long answers then were 4 % quicker."""

_NEW = 0.1
"""Weight of the newest pass in the measured time."""

_GUESS = 0.4
"""How often a draft is accepted behind the one before it where an adapter does not say."""


_COPIED_RIGHT, _COPY_WEIGHT, _COPY_BACK = 0.7, 0.1, 0.005
"""How often a copied token is right behind one that was, to begin with; the weight of the newest one; and how fast the
first value comes back, so that copying is tried again on the next text."""


def rows_of(slots: int, copied: int = 0) -> int:
    """Rows of a pass with so many drafts and a branch for each outcome."""
    return (slots + 1) ** 2 + copied


class Pace:
    """Chooses the number of drafts.

    Args:
        cost: measured seconds of a pass, by rows, to begin with.
        most: drafts that the adapter was trained for.
        acceptance: how often the first, the first two, … drafts are all accepted, to begin with.
    """

    def __init__(self, cost: Mapping[int, float], most: int, acceptance: Sequence[float] = ()) -> None:
        self._measured = dict(cost)
        self._rows = sorted(cost)
        self._cost = self._smoothed()
        known = list(acceptance)[:most]
        while len(known) < most:
            known.append((known[-1] if known else 1.0) * _GUESS)
        self._acceptance, self._usual = known, tuple(known)
        self._seen = 0
        self._copied_right = _COPIED_RIGHT

    @property
    def acceptance(self) -> tuple[float, ...]:
        """As it is now."""
        return tuple(self._acceptance)

    def seconds(self, rows: int) -> float:
        """What a pass of so many rows takes: between those measured in a straight line, beyond them at least as steep
        as all of them together."""
        if len(self._rows) == 1 or rows <= self._rows[0]:
            return self._cost[0]
        steps = list(zip(self._rows, self._cost, strict=True))
        for (r0, c0), (r1, c1) in itertools.pairwise(steps):
            if rows <= r1:
                return c0 + (c1 - c0) * (rows - r0) / (r1 - r0)
        (first, low), (before, middle), (last, high) = steps[0], steps[-2], steps[-1]
        slope = max((high - low) / (last - first), (high - middle) / (last - before))
        return high + slope * (rows - last)

    def slots(self, conversations: int = 1, copied: int = 0) -> int:
        """The number of drafts, for each of so many conversations in a pass, that says the most tokens a second."""
        best, speed = 0, 0.0
        for slots in range(len(self._acceptance) + 1):
            tokens = 1 + sum(self._acceptance[:slots])
            here = tokens / self.seconds(conversations * rows_of(slots, copied))
            if here > speed:
                best, speed = slots, here if slots else here * _WORTH
        return best

    def copied(self, most: int) -> int:
        """How many tokens of a continuation found in the conversation are worth checking, none to `most`."""
        chance = self._copied_right
        tokens = list(itertools.accumulate(chance**n for n in range(most + 1)))
        return max(range(most + 1), key=lambda n: tokens[n] / self.seconds(1 + n) / (_WORTH if n else 1))

    def learn_copied(self, tried: int, right: int) -> None:
        """A pass checked so many copied tokens, and so many were right up to the first wrong one."""
        for place in range(min(right + 1, tried)):
            self._copied_right += _COPY_WEIGHT * (float(place < right) - self._copied_right)
        self._copied_right += _COPY_BACK * (_COPIED_RIGHT - self._copied_right)

    def took(self, rows: int, seconds: float) -> None:
        """A pass of so many rows took so long: machines slow down, and other work wants their cores."""
        if rows in self._measured:
            self._measured[rows] += _NEW * (seconds - self._measured[rows])
            self._cost = self._smoothed()

    def _smoothed(self) -> list[float]:
        """More rows never take less time; where they seem to, that is noise."""
        return list(itertools.accumulate((self._measured[rows] for rows in self._rows), max))

    def learn(self, tried: int, accepted: int) -> None:
        """A pass checked `tried` drafts, and so many of them were accepted. What is not tried drifts back to what was
        usual, so that drafts that do not pay on one text are tried again on the next."""
        self._seen += 1
        weight = max(_SLOW, 1 / (_TRUSTED + self._seen))
        for slot, old in enumerate(self._acceptance):
            seen = float(slot < accepted) if slot < tried else self._usual[slot]
            self._acceptance[slot] = old + weight * (seen - old)
