"""Expected times of forward passes: interpolation, and how they follow what is measured."""

from __future__ import annotations

import pytest

from model.decode.pass_times import PassTimes


def test_times_are_interpolated_and_extrapolated() -> None:
    times = PassTimes({1: 1.0, 9: 3.0})
    assert times.seconds(5) == 2.0 and times.seconds(17) == 5.0
    assert PassTimes({1: 1.0}).seconds(30) == 1.0
    steeper = PassTimes({1: 10.0, 4: 10.1, 9: 10.3, 16: 10.2})
    assert steeper.seconds(16) == 10.3, "more rows are never faster: that is noise"
    assert steeper.seconds(1024) > steeper.seconds(256) > 10.3


def test_times_follow_a_slower_processor_and_an_interrupted_pass_changes_little() -> None:
    times = PassTimes({1: 1.0, 4: 1.2})
    times.record(1, 100.0)
    assert times.seconds(1) < 1.2
    for _ in range(40):
        times.record(1, 3.0)
    assert times.seconds(1) == pytest.approx(3.0, rel=0.1)
    assert 2.4 < times.seconds(4) <= 3.6, "what is not run follows"
    for _ in range(60):
        times.record(1, 1.0)
    assert times.seconds(1) == pytest.approx(1.0, rel=0.1) and times.seconds(4) == pytest.approx(1.2, rel=0.2)


def test_passes_between_measured_numbers_of_rows_count_for_both() -> None:
    times = PassTimes({1: 1.0, 6: 1.2, 8: 2.0})
    for _ in range(60):
        times.record(7, 1.3)
    assert times.seconds(7) == pytest.approx(1.3, rel=0.05) and times.seconds(8) < 1.7
    before = times.seconds(8)
    times.record(9, 50.0)
    assert times.seconds(8) == before, "more rows than at the start are ignored"


def test_fewer_rows_take_no_longer_than_more_that_were_timed_since() -> None:
    times = PassTimes({1: 1.0, 6: 1.2, 8: 1.3})
    for _ in range(60):
        times.record(6, 1.8)
        times.record(1, 1.0)
    assert times.seconds(6) > 1.5
    for _ in range(40):
        times.record(1, 1.0)
    for _ in range(5):
        times.record(8, 1.2)
    assert times.seconds(6) < 1.35


def test_a_wrong_time_is_forgotten_if_such_passes_are_no_longer_run() -> None:
    times = PassTimes({1: 1.0, 2: 1.05})
    for _ in range(30):
        times.record(2, 3.0)
    assert times.seconds(2) > 2.5
    for _ in range(3000):
        times.record(1, 1.0)
    assert times.seconds(2) == pytest.approx(1.05, rel=0.1)


def test_a_time_is_due_after_32_other_passes_and_counts_more_then() -> None:
    times = PassTimes({1: 1.0, 4: 1.2, 8: 3.0})
    for n in range(32):
        assert not times.is_due(8), n
        times.record(4, 1.2)
    assert times.is_due(8) and not times.is_due(4)
    times.record(8, 1.4)
    assert not times.is_due(8) and times.seconds(8) < 2.5
