"""The simulated fleet: its calls add up, nobody is cut off, and routing matters as theory says."""

from __future__ import annotations

import numpy as np
import pytest

from lab.simulator.fleet import (
    ROUTERS,
    Fleet,
    Latencies,
    ReplicaKind,
    daily_curve,
    least_connections,
    power_of_two,
    round_robin,
    staged_costs,
)

HOUR_S = 3600


class Kind(ReplicaKind):
    """Carries eight conversations, and is not measured first."""

    capacity = 8  # type: ignore[assignment]


KIND = Kind(staged_costs(0.1, 0.02, 0.1, 0.4), 1.0, 1.0, 60.0, "a test")


def test_the_curve_is_one_at_its_highest_and_never_zero() -> None:
    values = [daily_curve(second) for second in range(0, 24 * HOUR_S, 60)]
    assert max(values) == pytest.approx(1.0, abs=1e-3) and min(values) >= 0.1
    assert daily_curve(3 * HOUR_S) < 0.2 < 0.8 < daily_curve(11 * HOUR_S)


@pytest.mark.parametrize("router", ROUTERS)
def test_a_fleet_follows_its_calls_and_cuts_none_off(router: str) -> None:
    fleet = Fleet(KIND, 100, ROUTERS[router], seed=1)
    out = fleet.run(10 * HOUR_S)
    assert out.cut_off == 0
    assert out.refused < 0.001 * out.calls
    assert 10 <= out.peak_replicas <= 25 and out.peak_calls <= 8 * out.peak_replicas
    assert out.replica_hours < 10 * out.peak_replicas  # it was smaller at night
    assert out.occupancy[9:].sum() == 0


def test_a_fleet_that_does_not_grow_refuses_whom_it_cannot_take() -> None:
    fleet = Fleet(KIND, 1000, power_of_two, seed=1, fixed=True)
    fleet._state[3:] = 0
    out = fleet.run(HOUR_S // 4)
    assert out.peak_replicas == 3 and out.peak_calls <= 24
    assert out.refused > 0.1 * out.calls


def test_routers_choose_as_their_names_say() -> None:
    chance, occupied = np.random.default_rng(0), np.array([5, 0, 3, 1])
    assert sorted(least_connections(occupied, 2, chance, 0)) == [1, 3]
    assert list(least_connections(occupied, 6, chance, 0)[:4]) == [1, 3, 2, 0]
    assert list(round_robin(occupied, 3, chance, 6)) == [2, 3, 0]
    assert not (power_of_two(np.array([9, 0]), 200, chance, 0) == 0).sum() > 80


def test_turns_wait_longer_on_busy_replicas_and_for_stages_that_others_use() -> None:
    costs = staged_costs(recognition_s=0.1, language_s=0.02, synthesis_s=0.1, rest_s=0.4)
    assert costs.first_audio_s[1] == pytest.approx(0.22)
    assert costs.first_audio_s[2] == pytest.approx((0.22 + 0.32) / 2)
    latencies = Latencies(Kind(staged_costs(0.4, 0.1, 0.4, 1.0), 1.0, 1.0, 60.0, "a slow test"))
    alone, busy = np.zeros(9), np.zeros(9)
    alone[1], busy[8] = 1.0, 1.0
    assert latencies.percentile(alone, 0.95) < latencies.percentile(busy, 0.95)
