"""Effort levels map to schedules, and the number of steps of a block follows its confidence and the deadline."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.checkpoint.architectures import FAMILIES, DiffusionConfig, get_family
from model.decode.effort import (
    MAX_STEPS,
    MIN_STEPS,
    DenoisingSchedule,
    fitted_blocks,
    schedule_for_effort,
    steps_allowed,
    steps_needed,
)


def test_effort_sets_bounds_and_steps_and_max_steps_overrides_them() -> None:
    schedules = [schedule_for_effort(effort) for effort in ("instant", "low", "medium", "high")]
    assert [schedule.bound for schedule in schedules] == sorted(schedule.bound for schedule in schedules)
    assert [schedule.max_steps for schedule in schedules] == sorted(schedule.max_steps for schedule in schedules)
    assert schedules[-1].max_steps == MAX_STEPS
    assert schedule_for_effort("low", 2).max_steps == 2
    assert schedule_for_effort("medium", rule="factor").bound == 1.0
    assert schedule_for_effort("low", edit=0.5) == replace(schedule_for_effort("low"), edit=0.5)
    with pytest.raises(ValueError, match="the edit threshold is 2 and must be a probability between 0 and 1"):
        schedule_for_effort("low", edit=2)
    with pytest.raises(ValueError, match="the number of blocks in flight is 9 and must be between 1 and 8"):
        schedule_for_effort("low", in_flight=9)
    with pytest.raises(ValueError, match="max_steps is 99 and must be between 1 and 64"):
        schedule_for_effort("low", 99)
    with pytest.raises(ValueError, match="the block size is 257 and must be between 1 and 256"):
        schedule_for_effort("low", block_size=257)


def diffusion_of(name: str) -> DiffusionConfig:
    diffusion = get_family(name).diffusion
    assert diffusion is not None
    return diffusion


def fits(schedule: DenoisingSchedule) -> set[str]:
    """The families that a schedule fits."""
    fitting = set()
    for family in FAMILIES:
        try:
            fitted_blocks(family.diffusion or diffusion_of("sdar"), schedule, family.name)
            fitting.add(family.name)
        except ValueError:
            continue
    return fitting


def test_what_a_family_was_not_trained_for_is_refused() -> None:
    assert fits(schedule_for_effort("high")) == {family.name for family in FAMILIES}
    assert fits(schedule_for_effort("high", in_flight=2)) == {"llada", "dream", "mdlm"}
    assert fits(schedule_for_effort("high", block_size=64)) == {"llada", "dream", "mdlm"}
    assert fits(schedule_for_effort("high", edit=0.9)) == {"i-dlm"}
    bd3lm, wide = diffusion_of("bd3lm"), schedule_for_effort("low", block_size=256)
    with pytest.raises(ValueError, match="bd3lm was trained on blocks of 32 tokens: only llada, dream, mdlm can have"):
        fitted_blocks(bd3lm, wide, "bd3lm")
    with pytest.raises(ValueError, match="bd3lm was trained on one block at a time: only llada, dream, mdlm can have"):
        fitted_blocks(bd3lm, schedule_for_effort("low", in_flight=2), "bd3lm")
    with pytest.raises(ValueError, match="bd3lm was not trained to correct tokens, only i-dlm and converted models"):
        fitted_blocks(bd3lm, schedule_for_effort("low", edit=0.5), "bd3lm")
    mdlm = fitted_blocks(diffusion_of("mdlm"), wide, "mdlm")
    assert (mdlm.block_size, mdlm.canvas) == (256, 256)


def test_the_confidence_of_the_first_step_determines_how_many_steps_a_block_needs() -> None:
    schedule = schedule_for_effort("high")
    confident, unsure, lost = [0.99] * 8, [0.9, 0.6, 0.7, 0.8], [0.2] * 16
    needed = [steps_needed(confidence, schedule) for confidence in (confident, unsure, lost)]
    assert needed[0] == 1
    assert 2 <= needed[1] <= 5
    assert needed[2] == MAX_STEPS
    assert steps_needed([0.2] * 16, schedule_for_effort("instant")) == 3


@given(needed=st.integers(1, 8), affordable=st.integers(0, 20))
def test_a_deadline_removes_steps_within_bounds(needed: int, affordable: int) -> None:
    allowed = steps_allowed(needed, affordable)
    assert min(needed, MIN_STEPS) <= allowed <= needed
    assert allowed <= max(MIN_STEPS, affordable)
