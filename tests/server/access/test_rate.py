"""The token bucket."""

from __future__ import annotations

from server.access.rate import TokenBucket


def test_a_burst_passes_and_a_flood_is_slowed_to_the_rate() -> None:
    now = [0.0]
    bucket = TokenBucket(10.0, 5.0, lambda: now[0])
    assert [bucket.take() for _ in range(5)] == [0.0] * 5
    for _ in range(100):
        now[0] += bucket.take()
    assert abs(now[0] - 10.0) < 0.2
    now[0] += 60
    assert [bucket.take() for _ in range(5)] == [0.0] * 5
    assert bucket.take() > 0
