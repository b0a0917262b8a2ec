"""Adaptive draft length: chooses how many tokens to draft per step from the measured cost of a forward pass and the
measured acceptance.

A step with k drafts of an adapter has (k + 1)² rows, because every possible number of accepted drafts has a branch of k
noise rows; with drafts of a draft head, or copied ones, it has k + 1, and one for each other choice than these. It
commits one token plus, on average, Σ aᵢ more, where aᵢ is how often the first i drafts are all accepted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from model.decode.pass_times import PassTimes

_MIN_WEIGHT, _PRIOR_STEPS = 0.02, 10
"""Weight of the newest step in the running acceptance: it spans a few dozen steps, about three responses. The weight is
higher at first: the initial acceptance counts as this many steps, because it was measured on other text."""

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

_OTHERS_PROMISED, _OTHERS_RIGHT, _OTHERS_WEIGHT = 0.25, 0.16, 0.02
"""Other choices than drafts: how many a step promises at first, as the draft head is more certain than right, and how
many are; and the weight of the newest step."""

_MAX_TRIAL_COST = 1.5
"""How much longer a forward pass may be expected to take whose time is measured again."""

MAX_ROWS = 8
"""Maximum rows of a step with other choices than drafts: on most processors, weights take about as long to arrive as to
be multiplied with eight rows."""

MAX_HEAD_DRAFTS = MAX_ROWS - 1
"""Maximum tokens that a draft head drafts per step."""


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
        others_right: how often another choice than a draft is right, by how often it should be by its probability.
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
        self._times = PassTimes(step_seconds)
        self._by_steps = [_with_defaults(rates, max_drafts) for rates in by_steps]
        initial = _with_defaults(acceptance, max_drafts)
        self.acceptance, self._initial_acceptance = initial, tuple(initial)
        self._steps = 0
        self.copied_acceptance = _COPIED_ACCEPTANCE
        self._others_promised, self._others_right = _OTHERS_PROMISED, _OTHERS_RIGHT

    @property
    def others_right(self) -> float:
        return self._others_right / self._others_promised

    def step_seconds(self, rows: int) -> float:
        """Expected seconds of a forward pass with this many rows."""
        return self._times.seconds(rows)

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
        return self._pays(gain, others + count, conversations, self.head_seconds)

    def num_others(self, chances: Sequence[float], rows: int, conversations: int = 1) -> int:
        """How many other choices than drafts are worth verifying.

        Args:
            chances: their probabilities by the draft head, in descending order.
            rows: of the step without them.
            conversations: number of conversations that share the forward pass, each with as many rows.
        """
        room = MAX_ROWS - rows
        may_try = conversations == 1 and len(chances) >= room > 0 and self._times.is_due(MAX_ROWS)
        if may_try and self.step_seconds(MAX_ROWS) < _MAX_TRIAL_COST * self.step_seconds(rows):
            return room
        pay = (self._pays(chance * self.others_right, rows + n, conversations) for n, chance in enumerate(chances))
        return sum(itertools.takewhile(bool, itertools.islice(pay, max(0, room))))

    def _pays(self, gain: float, rows: int, conversations: int, seconds: float = 0.0) -> bool:
        """Whether a row that yields `gain` tokens is worth its time and these `seconds`, if the step has so many rows
        without it."""
        before, after = (self.step_seconds(conversations * count) for count in (rows, rows + 1))
        cost = (after - before) / conversations + seconds
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

    def record_others(self, promised: float, right: bool) -> None:
        """Record whether one of a step's other choices was right, and how likely that was by their probabilities: 0
        without any, after which the estimate returns to its initial value."""
        promised, number = (promised, float(right)) if promised else (_OTHERS_PROMISED, _OTHERS_RIGHT)
        self._others_promised += _OTHERS_WEIGHT * (promised - self._others_promised)
        self._others_right += _OTHERS_WEIGHT * (number - self._others_right)

    def record_time(self, rows: int, seconds: float) -> None:
        """Record how long a forward pass of one conversation took (`PassTimes.record`)."""
        self._times.record(rows, seconds)

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
