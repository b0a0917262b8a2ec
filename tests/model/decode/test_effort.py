"""Effort levels map to schedules, and the number of steps of a block follows its confidence and the deadline."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.decode.effort import MAX_STEPS, MIN_STEPS, schedule_for_effort, steps_allowed, steps_needed


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
