"""Adaptive draft length: chooses how many tokens to draft per step from the measured cost of a forward pass and the
measured acceptance.

A step with k drafts of an adapter has (k + 1)² rows, because every possible number of accepted drafts has a branch of k
noise rows; with drafts of a draft head, or copied ones, it has k + 1. It commits one token plus, on average, Σ aᵢ more,
where aᵢ is how often the first i drafts are all accepted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

_MIN_WEIGHT, _PRIOR_STEPS = 0.02, 10
"""Weight of the newest step in the running acceptance: it spans a few dozen steps, about three responses. The weight is
higher at first: the initial acceptance counts as this many steps, because it was measured on other text."""

_TIME_WEIGHT, _OTHER_TIME_WEIGHT = 0.1, 0.02
"""Weight of the newest step in the expected time of a forward pass with as many rows, and with other numbers of rows:
these follow in proportion, so that a wrong time does not last because it keeps such passes from being run."""

_MAX_SLOWDOWN = 1.5
"""A forward pass that took longer than this many times what was expected was interrupted, and counts as this long. If
the processor has become slower, the expectation follows within a few dozen steps."""

_MIN_SPEEDUP = 1.25
"""Drafting with an adapter, and copying, must be expected to be this much faster than no drafting. The cost of a
forward pass is measured on an idle machine; while the speech models run, drafts cost more, and a first clause has few
tokens. Over 16 spoken turns the first clause was complete after 86 and 96 ms (p50, two runs) with this value, and after
109 and 122 ms with 1.1, although long responses were 4 % faster then."""

_DEFAULT_ACCEPTANCE = 0.4
"""How often a draft is accepted after an accepted one, if the adapter does not record it."""

_COPIED_ACCEPTANCE, _COPIED_WEIGHT, _COPIED_RECOVERY = 0.7, 0.1, 0.005
"""For n-gram look-up: the initial probability that a copied token is right after a right one; the weight of the newest
copied token; and how fast the estimate returns to the initial value, so that copying is tried again on later text."""

MAX_HEAD_DRAFTS = 7
"""Maximum tokens that a draft head drafts per step: the kernels take up to eight rows at a time, so a ninth costs
more."""


def num_rows(num_drafts: int) -> int:
    """Rows of a step with this many drafts and a branch for each outcome."""
    return (num_drafts + 1) ** 2


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
        max_drafts: number of drafts that the adapter was trained for, or that a draft head may make.
        acceptance: how often the first, the first two, … drafts are all accepted. Updated by `record_drafts`.
        head_seconds: measured seconds in which a draft head drafts another token; None without one.
        block_seconds: measured seconds in which it denoises a block once.
        by_steps: `acceptance` after one denoising step, after two, …

    Attributes:
        head_seconds, block_seconds, acceptance: the same; the acceptance is the current estimate.
        copied_acceptance: how often a copied token is right after a right one, in recent text.
    """

    def __init__(
        self,
        step_seconds: Mapping[int, float],
        max_drafts: int,
        acceptance: Sequence[float] = (),
        head_seconds: float | None = None,
        block_seconds: float = 0.0,
        by_steps: Sequence[Sequence[float]] = (),
    ) -> None:
        self.head_seconds, self.block_seconds = head_seconds, block_seconds
        self._initial, self._measured, self._rows = dict(step_seconds), dict(step_seconds), sorted(step_seconds)
        self._seconds = self._monotonic()
        self._by_steps = [_with_defaults(rates, max_drafts) for rates in by_steps]
        initial = _with_defaults(acceptance, max_drafts)
        self.acceptance, self._initial_acceptance = initial, tuple(initial)
        self._steps = 0
        self.copied_acceptance = _COPIED_ACCEPTANCE

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

    def num_drafts(self, conversations: int = 1) -> int:
        """The number of an adapter's drafts that maximizes tokens per second; 0 with a draft head.

        Args:
            conversations: number of conversations that share the forward pass, each with that many drafts.
        """
        best, best_speed = 0, 0.0
        if self.head_seconds is not None:
            return 0
        for count in range(len(self.acceptance) + 1):
            tokens = 1 + sum(self.acceptance[:count])
            speed = tokens / self.step_seconds(conversations * num_rows(count))
            if speed > best_speed:
                best, best_speed = count, speed if count else speed * _MIN_SPEEDUP
        return best

    def worth_drafting(self, confidence: Sequence[float], others: int = 1, conversations: int = 1) -> bool:
        """Whether a draft head should draft another token.

        It should if its row is expected to yield more tokens per second than the step as a whole, which is where the
        ratio of tokens to time is largest (Dinkelbach's criterion for ratios).

        Args:
            confidence: in each draft so far, provided that those before it are right.
            others: rows of the step that are no drafts.
            conversations: number of conversations that share the forward pass, each with as many rows.
        """
        count = len(confidence)
        if self.head_seconds is None or count >= len(self.acceptance):
            return False
        if count == 0 and self.block_seconds:
            with_block = max(self._speeds(self.acceptance, 1, conversations)[1:])
            return with_block * self.step_seconds(conversations) > 1
        following = self.acceptance[count] / max(1e-6, self.acceptance[count - 1] if count else 1.0)
        gain = math.prod(confidence) * min(1.0, following)
        rows = conversations * (others + count)
        cost = (self.step_seconds(rows + conversations) - self.step_seconds(rows)) / conversations + self.head_seconds
        return gain > cost * self._tokens_per_second(conversations)

    def denoising_steps(self, most: int, conversations: int = 1) -> int:
        """How many denoising steps of a block are worth their time: each must promise more tokens per second."""
        speeds = [
            max(self._speeds(rates, steps, conversations))
            for steps, rates in enumerate(self._by_steps[: max(1, most)], 1)
        ]
        return 1 + max(range(len(speeds)), key=speeds.__getitem__) if speeds else 1

    def _tokens_per_second(self, conversations: int = 1) -> float:
        """Of all conversations together, with the best fixed number of a draft head's drafts."""
        if self.head_seconds is None:
            return conversations / self.step_seconds(conversations)
        return conversations * max(self._speeds(self.acceptance, 1, conversations))

    def _speeds(self, acceptance: Sequence[float], steps: int, conversations: int) -> list[float]:
        """Tokens per second of a conversation with each number of a draft head's drafts, from none.

        Args:
            steps: denoising steps of a block.
        """
        speeds = []
        for n, tokens in enumerate(itertools.accumulate(acceptance, initial=1.0)):
            drafting = n * (self.head_seconds or 0.0) + (steps * self.block_seconds if n else 0.0)
            speeds.append(tokens / (self.step_seconds(conversations * (1 + n)) + conversations * drafting))
        return speeds

    def num_copied(self, max_copied: int) -> int:
        """How many tokens found by n-gram look-up are worth verifying, from 0 to `max_copied`."""
        chance, best = self.copied_acceptance, 0
        best_speed = max(_MIN_SPEEDUP / self.step_seconds(1), self._tokens_per_second())
        for count, tokens in enumerate(itertools.accumulate(chance**n for n in range(max_copied + 1))):
            speed = tokens / self.step_seconds(1 + count)
            if count and speed > best_speed:
                best, best_speed = count, speed
        return best

    def record_copied(self, tried: int, accepted: int) -> None:
        """Record that a step verified `tried` copied tokens and accepted the first `accepted`."""
        for position in range(min(accepted + 1, tried)):
            self.copied_acceptance += _COPIED_WEIGHT * (float(position < accepted) - self.copied_acceptance)
        self.copied_acceptance += _COPIED_RECOVERY * (_COPIED_ACCEPTANCE - self.copied_acceptance)

    def record_time(self, rows: int, seconds: float) -> None:
        """Record how long a forward pass took. Processors slow down, and other work competes for their cores. Numbers
        of rows that were not measured at the start are ignored."""
        if rows not in self._measured:
            return
        slowdown = min(seconds, _MAX_SLOWDOWN * self._measured[rows]) / self._initial[rows]
        for number, initial in self._initial.items():
            weight = _TIME_WEIGHT if number == rows else _OTHER_TIME_WEIGHT
            self._measured[number] += weight * (slowdown * initial - self._measured[number])
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
        for n, old in enumerate(self.acceptance):
            observed = float(n < accepted) if n < tried else self._initial_acceptance[n]
            self.acceptance[n] = old + weight * (observed - old)
