"""How many steps a block of text gets, and how confident the model must be to unmask a token. This depends on the
effort, on what the first step shows, and on the deadline of the first clause.

Speculative decoding always produces the base model's own text: there the effort only bounds the steps of a block
drafter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from chat.types import Effort
from model.checkpoint.architectures import FAMILIES, MAX_BLOCK_SIZE, DiffusionConfig

UnmaskingRule = Literal["threshold", "factor", "entropy"]

MIN_STEPS = 2
"""Fewest steps of a block, however close the deadline: the tokens that a single step drafts are too often inconsistent
with each other to be spoken."""

MAX_STEPS = 8
"""Most steps of a block, unless `max_steps` sets another limit."""

STEPS_TOKENS = 32
"""Tokens that the steps of an effort are meant for: the most common size of a block."""

_NEGLIGIBLE_ERRORS = 0.05
"""Expected wrong tokens of a block below which one step is enough."""


@dataclass(frozen=True)
class DenoisingSchedule:
    """How a block is denoised.

    Attributes:
        rule: which masked tokens a step unmasks. `threshold`: those whose confidence reaches `bound`
            (Fast-dLLM, arXiv 2505.22618). `factor`: the largest n with (n + 1)(1 - c₍ₙ₎) < bound (ibid.).
            `entropy`: in order of entropy, while their sum without the largest stays within `bound` (arXiv 2505.24857).
        bound: in the unit of the rule.
        max_steps: most steps of a block of up to `STEPS_TOKENS` tokens, and of each further that many; the last one
            unmasks everything.
        remask: a token of the current block is masked again if its probability falls below this; None for never.
        edit: a token is replaced if another one's probability is above this (LLaDA2.1, arXiv 2602.08676, T2T).
        in_flight: number of blocks denoised at a time.
        block_size: tokens of a block; None for the family's own.
        draft_steps: most steps of a block drafter. Its drafts are verified, so they change the speed only.
        limit: the `max_steps` that was asked for in place of an effort's own; None if none was.
    """

    rule: UnmaskingRule = "threshold"
    bound: float = 0.9
    max_steps: int = 6
    remask: float | None = None
    edit: float | None = None
    in_flight: int = 1
    block_size: int | None = None
    draft_steps: int = 2
    limit: int | None = None

    @property
    def may_change(self) -> bool:
        """Whether an unmasked token may still change before its block is done."""
        return self.remask is not None or self.edit is not None

    def limited(self, max_steps: int) -> DenoisingSchedule:
        """The same with this limit of steps. Raises ValueError if it is out of range."""
        if not 1 <= max_steps <= 64:
            raise ValueError(f"max_steps is {max_steps} and must be between 1 and 64")
        return replace(self, max_steps=max_steps, draft_steps=max_steps, limit=max_steps)


EFFORTS: dict[Effort, DenoisingSchedule] = {
    "instant": DenoisingSchedule(bound=0.7, max_steps=3, draft_steps=1),
    "low": DenoisingSchedule(bound=0.8, max_steps=4, draft_steps=1),
    "medium": DenoisingSchedule(bound=0.9, max_steps=6),
    "high": DenoisingSchedule(bound=0.95, max_steps=MAX_STEPS, remask=0.2, draft_steps=3),
}

_BOUNDS: dict[UnmaskingRule, dict[Effort, float]] = {
    "threshold": {effort: schedule.bound for effort, schedule in EFFORTS.items()},
    "factor": {"instant": 2.0, "low": 1.5, "medium": 1.0, "high": 0.5},
    "entropy": {"instant": 0.8, "low": 0.4, "medium": 0.1, "high": 0.05},
}
"""The bound of each rule at each effort; 1.0 and 0.1 are from the papers."""


def schedule_for_effort(
    effort: Effort,
    max_steps: int | None = None,
    rule: UnmaskingRule = "threshold",
    in_flight: int = 1,
    edit: float | None = None,
    block_size: int | None = None,
) -> DenoisingSchedule:
    """The schedule of an effort level.

    Raises:
        ValueError: `max_steps`, `in_flight`, `edit` or `block_size` is out of range.
    """
    if not 1 <= in_flight <= 8:
        raise ValueError(f"the number of blocks in flight is {in_flight} and must be between 1 and 8")
    if edit is not None and not 0 <= edit <= 1:
        raise ValueError(f"the edit threshold is {edit} and must be a probability between 0 and 1")
    if block_size is not None and not 1 <= block_size <= MAX_BLOCK_SIZE:
        raise ValueError(f"the block size is {block_size} and must be between 1 and {MAX_BLOCK_SIZE}")
    schedule = EFFORTS[effort] if max_steps is None else EFFORTS[effort].limited(max_steps)
    bound = _BOUNDS[rule][effort]
    return replace(schedule, rule=rule, bound=bound, in_flight=in_flight, edit=edit, block_size=block_size)


def fitted_blocks(diffusion: DiffusionConfig, schedule: DenoisingSchedule, name: str) -> DiffusionConfig:
    """How a family called `name` denoises, with blocks of the size that a schedule asks for.

    Raises:
        ValueError: the family was not trained for what the schedule asks for.
    """
    families = [(family.name, family.diffusion) for family in FAMILIES if family.diffusion is not None]
    if schedule.edit is not None and not diffusion.corrects:
        trained = ", ".join(name for name, other in families if other.corrects)
        raise ValueError(
            f"{name} was not trained to correct tokens, only {trained} and converted models were: leave the edit "
            "threshold out"
        )
    if diffusion.masks_anywhere:
        size = schedule.block_size or diffusion.block_size
        return replace(diffusion, block_size=size, canvas=max(size, diffusion.canvas))
    trained = ", ".join(dict.fromkeys(name for name, other in families if other.masks_anywhere))
    if schedule.in_flight > 1:
        raise ValueError(f"{name} was trained on one block at a time: only {trained} can have several in flight")
    if schedule.block_size not in (None, diffusion.block_size):
        size = diffusion.block_size
        raise ValueError(f"{name} was trained on blocks of {size} tokens: only {trained} can have other sizes")
    return diffusion


def steps_needed(confidence: list[float], schedule: DenoisingSchedule) -> int:
    """How many steps a block needs, estimated from the confidence of its tokens in the first step.

    A step unmasks the confident tokens; each other token casts doubt on its neighbours. So the expected number of wrong
    tokens, if all were unmasked at once, measures what remains to be decided: one more step for each, on top of one.
    """
    unsure = [c for c in confidence if schedule.rule != "threshold" or c < schedule.bound]
    expected_errors = sum(1 - c for c in unsure)
    if expected_errors < _NEGLIGIBLE_ERRORS:
        return 1
    return min(schedule.max_steps, MIN_STEPS - 1 + math.ceil(expected_errors))


def steps_allowed(needed: int, affordable: int) -> int:
    """How many steps a block gets: as many as it needs and the time allows, but not fewer than `MIN_STEPS` if it needs
    those."""
    return min(needed, max(MIN_STEPS, affordable))
