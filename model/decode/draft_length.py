"""Adaptive draft length: chooses how many tokens to draft per step from the measured cost of a forward pass and the
measured acceptance.

A step with k drafts has (k + 1)² rows, because every possible number of accepted drafts has a branch of k noise rows.
It commits one token plus, on average, Σ aᵢ more, where aᵢ is how often the first i drafts are all accepted.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

_MIN_WEIGHT, _PRIOR_STEPS = 0.02, 10
"""Weight of the newest step in the running acceptance: it spans a few dozen steps, about three responses. The weight is
higher at first: the initial acceptance counts as this many steps, because it was measured on other text."""

_MIN_SPEEDUP = 1.25
"""Drafting must be expected to be this much faster than no drafting. The cost of a forward pass is measured on an idle
machine; while the speech models run, drafts cost more, and a first clause has few tokens. Over 16 spoken turns the
first clause was complete after 86 and 96 ms (p50, two runs) with this value, and after 109 and 122 ms with 1.1,
although long responses were 4 % faster then."""

_TIME_WEIGHT = 0.1
"""Weight of the newest step in the measured time."""

_DEFAULT_ACCEPTANCE = 0.4
"""How often a draft is accepted after an accepted one, if the adapter does not record it."""


_COPIED_ACCEPTANCE, _COPIED_WEIGHT, _COPIED_RECOVERY = 0.7, 0.1, 0.005
"""For n-gram look-up: the initial probability that a copied token is right after a right one; the weight of the newest
copied token; and how fast the estimate returns to the initial value, so that copying is tried again on later text."""


def num_rows(num_drafts: int, num_copied: int = 0) -> int:
    """Rows of a step with this many drafts and a branch for each outcome."""
    return (num_drafts + 1) ** 2 + num_copied


def best_num_drafts(step_seconds: Sequence[float], acceptance: Sequence[float]) -> int:
    """The number of drafts that maximizes tokens per second where nothing else shares the processor, as on a GPU.

    Args:
        step_seconds: seconds of a step, by number of drafts from 0.
        acceptance: how often the first, the first two, … drafts are all accepted.
    """
    rates = _with_defaults(acceptance, len(step_seconds) - 1)
    speeds = [(1 + sum(rates[:count])) / seconds for count, seconds in enumerate(step_seconds)]
    return max(range(len(speeds)), key=speeds.__getitem__)


def _with_defaults(acceptance: Sequence[float], max_drafts: int) -> list[float]:
    """Acceptance for `max_drafts` drafts; what is missing is estimated."""
    rates = list(acceptance)[:max_drafts]
    while len(rates) < max_drafts:
        rates.append((rates[-1] if rates else 1.0) * _DEFAULT_ACCEPTANCE)
    return rates


class DraftLengthController:
    """Chooses the number of drafts per step.

    Args:
        step_seconds: measured seconds of a forward pass, by number of rows. Updated by `record_time`.
        max_drafts: number of drafts that the adapter was trained for.
        acceptance: how often the first, the first two, … drafts are all accepted. Updated by `record_drafts`.
    """

    def __init__(self, step_seconds: Mapping[int, float], max_drafts: int, acceptance: Sequence[float] = ()) -> None:
        self._measured = dict(step_seconds)
        self._rows = sorted(step_seconds)
        self._seconds = self._monotonic()
        initial = _with_defaults(acceptance, max_drafts)
        self._acceptance, self._initial_acceptance = initial, tuple(initial)
        self._steps = 0
        self._copied_acceptance = _COPIED_ACCEPTANCE

    @property
    def acceptance(self) -> tuple[float, ...]:
        """The current estimate."""
        return tuple(self._acceptance)

    def step_seconds(self, rows: int) -> float:
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

    def num_drafts(self, conversations: int = 1, num_copied: int = 0) -> int:
        """The number of drafts that maximizes tokens per second.

        Args:
            conversations: number of conversations that share the forward pass, each with that many drafts.
            num_copied: number of copied tokens that each verifies in addition.
        """
        best, best_speed = 0, 0.0
        for count in range(len(self._acceptance) + 1):
            tokens = 1 + sum(self._acceptance[:count])
            speed = tokens / self.step_seconds(conversations * num_rows(count, num_copied))
            if speed > best_speed:
                best, best_speed = count, speed if count else speed * _MIN_SPEEDUP
        return best

    def num_copied(self, max_copied: int) -> int:
        """How many tokens found by n-gram look-up are worth verifying, from 0 to `max_copied`."""
        chance = self._copied_acceptance
        tokens = list(itertools.accumulate(chance**n for n in range(max_copied + 1)))
        return max(
            range(max_copied + 1),
            key=lambda n: tokens[n] / self.step_seconds(1 + n) / (_MIN_SPEEDUP if n else 1),
        )

    def record_copied(self, tried: int, accepted: int) -> None:
        """Record that a step verified `tried` copied tokens and accepted the first `accepted`."""
        for position in range(min(accepted + 1, tried)):
            self._copied_acceptance += _COPIED_WEIGHT * (float(position < accepted) - self._copied_acceptance)
        self._copied_acceptance += _COPIED_RECOVERY * (_COPIED_ACCEPTANCE - self._copied_acceptance)

    def record_time(self, rows: int, seconds: float) -> None:
        """Record how long a forward pass took. Processors slow down, and other work competes for their cores."""
        if rows in self._measured:
            self._measured[rows] += _TIME_WEIGHT * (seconds - self._measured[rows])
            self._seconds = self._monotonic()

    def _monotonic(self) -> list[float]:
        """Seconds by number of rows, non-decreasing: where more rows seem to take less time, that is noise."""
        return list(itertools.accumulate((self._measured[rows] for rows in self._rows), max))

    def record_drafts(self, tried: int, accepted: int) -> None:
        """Record that a step verified `tried` drafts and accepted the first `accepted`.

        The estimate for drafts that were not tried returns to its initial value, so that drafting is tried again on
        later text after it was not worth its cost.
        """
        self._steps += 1
        weight = max(_MIN_WEIGHT, 1 / (_PRIOR_STEPS + self._steps))
        for n, old in enumerate(self._acceptance):
            observed = float(n < accepted) if n < tried else self._initial_acceptance[n]
            self._acceptance[n] = old + weight * (observed - old)
