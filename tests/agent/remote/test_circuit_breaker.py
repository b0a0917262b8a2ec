"""When a failing server is left alone, and when it is asked again."""

from __future__ import annotations

from agent.remote.circuit_breaker import CircuitBreaker


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_opens_after_two_failures_in_a_row_and_waits_longer_each_time() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    assert breaker.failed() == 0
    assert breaker.allows
    breaker.succeeded()
    assert breaker.failed() == 0
    waits = []
    for _ in range(8):
        waits.append(breaker.failed())
        assert not breaker.allows
        clock.now += waits[-1] - 0.1
        assert not breaker.allows
        clock.now += 0.1
        assert breaker.allows
    assert waits == [5, 10, 20, 40, 80, 120, 120, 120]
    breaker.succeeded()
    assert breaker.failed() == 0


def test_a_server_that_asks_for_it_is_left_alone_at_once() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    assert breaker.failed(retry_after_s=30) == 30
    assert not breaker.allows
    assert CircuitBreaker(clock).failed(retry_after_s=1e9) == 120


def test_failures_of_requests_that_were_under_way_do_not_count_twice() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    for _ in range(10):
        breaker.failed()
    clock.now += 5
    assert breaker.allows
