"""As many drafts as pay for their rows."""

from __future__ import annotations

from model.decode.pace import Pace, rows_of


def test_drafts_are_as_many_as_say_the_most_tokens_a_second() -> None:
    flat = dict.fromkeys((1, 4, 9, 16), 1.0)
    steep = {1: 1.0, 4: 1.5, 9: 2.5, 16: 4.0}
    assert Pace(flat, 3, (0.5, 0.2, 0.1)).slots() == 3
    assert Pace(steep, 3, (0.4, 0.1, 0.01)).slots() == 0
    assert Pace(steep, 3, (0.9, 0.8, 0.7)).slots() == 1
    assert rows_of(3) == 16


def test_rows_are_shared_among_the_conversations_of_a_pass() -> None:
    cost = {1: 1.0, 9: 1.1, 16: 1.3, 64: 4.0}
    pace = Pace(cost, 3, (0.6, 0.4, 0.2))
    assert pace.slots(1) >= pace.slots(4) >= pace.slots(16)
    assert pace.slots(1) > 0
    assert pace.slots(64) == 0


def test_what_is_accepted_changes_the_choice_and_what_is_not_tried_comes_back() -> None:
    cost = {1: 1.0, 4: 1.2, 9: 1.4}
    pace = Pace(cost, 2, (0.5, 0.3))
    assert pace.slots() > 0
    for _ in range(300):
        pace.learn(tried=2, accepted=0)
    assert pace.slots() == 0
    assert pace.acceptance[0] < 0.01
    for _ in range(300):
        pace.learn(tried=0, accepted=0)
    assert pace.slots() > 0


def test_time_between_measured_sizes_lies_on_a_line() -> None:
    pace = Pace({1: 1.0, 9: 3.0}, 1)
    assert pace.seconds(5) == 2.0
    assert pace.seconds(17) == 5.0
    assert Pace({1: 1.0}, 0).slots() == 0


def test_noise_in_what_was_measured_never_makes_more_rows_quicker() -> None:
    pace = Pace({1: 10.0, 4: 10.1, 9: 10.3, 16: 10.2}, 3, (0.5, 0.3, 0.1))
    assert pace.seconds(16) == 10.3
    assert pace.seconds(1024) > pace.seconds(256) > 10.3


def test_a_machine_that_slows_down_with_rows_gets_fewer_drafts() -> None:
    pace = Pace({1: 1.0, 4: 1.1, 9: 1.2}, 2, (0.5, 0.3))
    assert pace.slots() == 2
    for _ in range(60):
        pace.took(9, 2.5)
        pace.took(4, 2.0)
        pace.took(17, 9.0)  # rows that were not timed tell nothing about those that were
    assert pace.slots() == 0


def test_copying_stops_where_it_does_not_pay_and_is_tried_again() -> None:
    pace = Pace({1: 1.0, 9: 1.5}, 1)
    assert pace.copied(8) >= 4
    for _ in range(20):
        pace.learn_copied(8, 0)
    assert pace.copied(8) == 0
    for _ in range(1000):
        pace.learn_copied(0, 0)
    assert pace.copied(8) >= 4
    assert Pace({1: 1.0, 9: 9.0}, 1).copied(8) == 0
