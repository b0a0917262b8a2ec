"""How the limit of conversations follows the latency of turns."""

from __future__ import annotations

import random

from server.access.adaptive_limit import AdaptiveLimit


def take_turns(limit: AdaptiveLimit, number: int, latency_ms: float, conversations: int | None = None) -> None:
    for _ in range(number):
        limit.add_turn(latency_ms, limit.current if conversations is None else conversations)


def test_it_rises_by_one_after_twenty_turns_in_time_with_as_many_conversations_as_it_admits() -> None:
    limit = AdaptiveLimit(2, 1, 1000)
    take_turns(limit, 100, 500, conversations=1)
    assert limit.current == 2  # nobody else wanted to come
    take_turns(limit, 19, 500)
    assert limit.current == 2
    take_turns(limit, 1, 500)
    assert limit.current == 3
    take_turns(limit, 20, 500)
    assert limit.current == 4


def test_it_falls_by_a_quarter_when_p95_of_twenty_turns_exceeds_the_target_but_not_below_the_floor() -> None:
    limit = AdaptiveLimit(8, 2, 1000)
    take_turns(limit, 19, 1500)
    assert limit.current == 8
    take_turns(limit, 1, 1500)
    assert limit.current == 6
    take_turns(limit, 100, 1500)
    assert limit.current == 2


def test_it_falls_once_for_the_conversations_that_are_open() -> None:
    limit = AdaptiveLimit(8, 2, 1000)
    take_turns(limit, 200, 1500, conversations=8)
    assert limit.current == 6
    take_turns(limit, 20, 1500, conversations=6)
    assert limit.current == 4


def test_one_slow_turn_of_twenty_changes_nothing() -> None:
    limit = AdaptiveLimit(4, 1, 1000)
    for _ in range(50):
        take_turns(limit, 19, 600, conversations=3)
        take_turns(limit, 1, 5000, conversations=3)
    assert limit.current == 4


def test_a_rise_that_was_taken_back_is_tried_again_later_each_time_until_one_survives() -> None:
    limit = AdaptiveLimit(2, 2, 1000)
    waited = []
    for _ in range(3):
        turns = 0
        while limit.current == 2:
            take_turns(limit, 1, 600)
            turns += 1
        waited.append(turns)
        take_turns(limit, 20, 1600)
    assert waited == [20, 40, 80]
    take_turns(limit, 160, 600)
    assert limit.current == 3
    take_turns(limit, 160, 600)
    assert limit.current == 4
    take_turns(limit, 20, 600)  # the rise to 3 has survived
    assert limit.current == 5


def test_a_fall_without_a_rise_before_it_delays_nothing() -> None:
    limit = AdaptiveLimit(8, 2, 1000)
    take_turns(limit, 20, 1500)
    assert limit.current == 6
    take_turns(limit, 20, 500)
    assert limit.current == 7


def test_a_new_trial_starts_again() -> None:
    limit = AdaptiveLimit(8, 2, 1000)
    take_turns(limit, 19, 1500)
    limit.restart(3, 1)
    take_turns(limit, 1, 1500)
    assert limit.current == 3


def test_with_a_server_that_slows_down_with_each_conversation_it_settles_where_turns_are_in_time() -> None:
    dice, limit, late, after = random.Random(1), AdaptiveLimit(2, 2, 1000), 0, 0
    for turn in range(6000):
        latency = dice.gauss(400 + 100 * limit.current, 60)
        take_turns(limit, 1, latency)  # there are always more callers
        if turn > 1000:
            after, late = after + 1, late + (latency > 1000)
    assert limit.current in (4, 5, 6)
    assert late / after < 0.1
