"""How the limit of conversations follows the latency of turns."""

from __future__ import annotations

import random

from server.access.adaptive_limit import MAX_CONVERSATIONS, AdaptiveLimit


def take_turns(limit: AdaptiveLimit, number: int, latency_ms: float) -> None:
    for _ in range(number):
        limit.add_turn(latency_ms)


def test_it_rises_by_one_only_after_it_was_reached_and_twenty_turns_were_in_time() -> None:
    limit = AdaptiveLimit(2, 1, 1000)
    take_turns(limit, 100, 500)
    assert limit.current == 2  # nobody else wanted to come
    limit.reached()
    limit.add_turn(500)
    assert limit.current == 3
    limit.reached()
    take_turns(limit, 19, 500)
    assert limit.current == 3
    limit.add_turn(500)
    assert limit.current == 4


def test_it_falls_by_a_quarter_when_p95_exceeds_the_target_but_not_below_the_floor() -> None:
    limit = AdaptiveLimit(8, 2, 1000)
    take_turns(limit, 10, 1500)
    assert limit.current == 6
    take_turns(limit, 100, 1500)
    assert limit.current == 2


def test_one_slow_turn_of_twenty_changes_nothing() -> None:
    limit = AdaptiveLimit(4, 1, 1000)
    limit.reached()
    take_turns(limit, 9, 600)
    limit.add_turn(1010)
    take_turns(limit, 10, 600)
    assert limit.current == 5


def test_a_rise_that_was_taken_back_is_tried_again_later_each_time() -> None:
    limit = AdaptiveLimit(2, 2, 1000)
    waited = []
    for _ in range(3):
        turns = 0
        while limit.current == 2:
            limit.reached()
            limit.add_turn(600)
            turns += 1
        waited.append(turns)
        while limit.current > 2:
            limit.add_turn(1600)
    assert waited == [20, 40, 80]


def test_a_new_trial_starts_again() -> None:
    limit = AdaptiveLimit(8, 2, 1000)
    take_turns(limit, 9, 1500)
    limit.restart(3, 1)
    limit.add_turn(1500)
    assert limit.current == 3


def test_with_a_server_that_slows_down_with_each_conversation_it_settles_where_turns_are_in_time() -> None:
    dice, limit, late, after = random.Random(1), AdaptiveLimit(2, 2, 1000), 0, 0
    for turn in range(6000):
        limit.reached()  # there are always more callers
        latency = dice.gauss(400 + 100 * limit.current, 60)
        limit.add_turn(latency)
        if turn > 1000:
            after, late = after + 1, late + (latency > 1000)
    assert limit.current in (4, 5, 6)
    assert late / after < 0.1
    assert limit.current <= MAX_CONVERSATIONS
