"""How many passes a block of text is given, and how sure a token must be: by effort, by what the first pass shows,
and by when something should be heard.

Only block denoising asks this. Verified decoding says the base model's own words whatever the hour.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

Effort = Literal["instant", "low", "medium", "high"]
Rule = Literal["threshold", "factor", "entropy"]

FEWEST = 2
"""Passes that a block is given at least, however close the deadline: what a single pass drafts does not fit together
often enough to be spoken."""

MOST = 8
"""Passes of a block at most, unless `max_steps` says otherwise."""

_SURE = 0.05
"""Expected wrong tokens of a block below which one pass is enough."""


@dataclass(frozen=True)
class Schedule:
    """How a block is denoised.

    Attributes:
        rule: which masked tokens are settled in a pass. `threshold`: those whose confidence reaches `bound`
            (Fast-dLLM, arXiv 2505.22618). `factor`: the largest n with (n + 1)(1 - c₍ₙ₎) < bound (ibid.).
            `entropy`: in order of entropy, while their sum without the largest stays within `bound` (arXiv 2505.24857).
        bound: in the rule's own unit.
        max_steps: passes of a block at most; in the last one everything is settled.
        remask: a token of this pass's block whose probability has fallen below this is masked again; None for never.
        edit: a token is replaced when another one's probability is above this (LLaDA2.1, arXiv 2602.08676, T2T).
        in_flight: blocks that are denoised at a time.
    """

    rule: Rule = "threshold"
    bound: float = 0.9
    max_steps: int = 6
    remask: float | None = None
    edit: float | None = None
    in_flight: int = 1

    @property
    def may_change(self) -> bool:
        """Whether a settled token may still change before its block is done."""
        return self.remask is not None or self.edit is not None


EFFORTS: dict[Effort, Schedule] = {
    "instant": Schedule(bound=0.7, max_steps=3),
    "low": Schedule(bound=0.8, max_steps=4),
    "medium": Schedule(bound=0.9, max_steps=6),
    "high": Schedule(bound=0.95, max_steps=MOST, remask=0.2),
}


_BOUNDS: dict[Rule, dict[Effort, float]] = {
    "threshold": {effort: schedule.bound for effort, schedule in EFFORTS.items()},
    "factor": {"instant": 2.0, "low": 1.5, "medium": 1.0, "high": 0.5},
    "entropy": {"instant": 0.8, "low": 0.4, "medium": 0.1, "high": 0.05},
}
"""What each rule is bounded by at each effort; 1.0 and 0.1 are the papers' own."""


def schedule_for(
    effort: Effort,
    max_steps: int | None = None,
    rule: Rule = "threshold",
    in_flight: int = 1,
    edit: float | None = None,
) -> Schedule:
    """What an effort stands for.

    Raises:
        ValueError: `max_steps`, `in_flight` or `edit` is out of range.
    """
    if max_steps is not None and not 1 <= max_steps <= 64:
        raise ValueError(f"max_steps is {max_steps} and must lie between 1 and 64")
    if not 1 <= in_flight <= 8:
        raise ValueError(f"{in_flight} blocks in flight are asked for, and there may be 1 to 8")
    if edit is not None and not 0 <= edit <= 1:
        raise ValueError(f"a token is to be edited from a probability of {edit} on, which must lie between 0 and 1")
    usual = EFFORTS[effort]
    return replace(
        usual,
        rule=rule,
        bound=_BOUNDS[rule][effort],
        max_steps=max_steps or usual.max_steps,
        in_flight=in_flight,
        edit=edit,
    )


def passes_needed(confidence: list[float], schedule: Schedule) -> int:
    """How many passes a block will want, from how sure its first pass is of each token.

    A pass settles what is sure; each token that is not brings its neighbours into doubt. So the expected number of
    wrong tokens, were all taken at once, is how much is left to find out: one more pass for each, beside two.
    """
    unsure = [c for c in confidence if schedule.rule != "threshold" or c < schedule.bound]
    doubt = sum(1 - c for c in unsure)
    return 1 if doubt < _SURE else min(schedule.max_steps, FEWEST - 1 + math.ceil(doubt))


def passes_given(wanted: int, affordable: int) -> int:
    """How many passes a block gets: what it wants, or what the time allows, and the fewest that make sense."""
    return min(wanted, max(FEWEST, affordable))
