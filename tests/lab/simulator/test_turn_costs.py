"""How many conversations a machine carries, by simulation."""

from __future__ import annotations

import pytest

from lab.simulator.turn_costs import MAX_CAPACITY, MAX_SLOWDOWN, TurnCosts, capacity, simulated_p95

SHARED = TurnCosts({1: 0.32, 2: 0.54, 4: 1.25}, 0.28, 0.1)
"""Turns that start together share most of the processor: two cores with a small model."""


def test_p95_grows_with_the_number_of_conversations() -> None:
    figures = [simulated_p95(SHARED, number) for number in (1, 2, 4, 8)]
    assert figures == sorted(figures)
    assert figures[0] == pytest.approx(0.6)  # alone, the end of the turn decides
    assert figures[-1] > 1.5 * figures[0]


def test_the_capacity_keeps_the_promise_and_one_more_would_break_it() -> None:
    number, alone = capacity(SHARED), simulated_p95(SHARED, 1)
    assert number == 2
    assert simulated_p95(SHARED, number) <= MAX_SLOWDOWN * alone < simulated_p95(SHARED, number + 1)


def test_faster_machines_carry_more_and_the_slowest_carries_one() -> None:
    fast = TurnCosts({1: 0.1, 2: 0.1, 4: 0.11}, 0.1, 0.01)
    slow = TurnCosts({1: 3.0, 2: 6.0, 4: 12.0}, 5.0, 1.0)
    assert capacity(slow) == 1
    assert capacity(SHARED) < capacity(fast) <= MAX_CAPACITY


def test_speed_between_and_beyond_what_was_measured() -> None:
    assert [SHARED.speed(number) for number in (1, 4)] == [1.0, 0.256]
    assert 0.256 < SHARED.speed(3) < SHARED.speed(2) < 1
    assert SHARED.speed(8) == pytest.approx(0.128)
