"""The draft length follows the measured cost of forward passes and the acceptance of drafts."""

from __future__ import annotations

import pytest

from chat.types import Effort
from model.decode.draft_length import DraftLengthController, num_rows
from model.decode.effort import schedule_for_effort


def test_the_number_of_drafts_maximizes_tokens_per_second() -> None:
    flat = dict.fromkeys((1, 4, 9, 16), 1.0)
    steep = {1: 1.0, 4: 1.5, 9: 2.5, 16: 4.0}
    assert DraftLengthController(flat, 3, (0.5, 0.2, 0.1)).num_drafts() == 3
    assert DraftLengthController(steep, 3, (0.4, 0.1, 0.01)).num_drafts() == 0
    assert DraftLengthController(steep, 3, (0.9, 0.8, 0.7)).num_drafts() == 1
    assert num_rows(3) == 16


def test_more_conversations_in_a_batch_get_fewer_drafts_each() -> None:
    controller = DraftLengthController({1: 1.0, 9: 1.1, 16: 1.3, 64: 4.0}, 3, (0.6, 0.4, 0.2))
    assert controller.num_drafts(1) >= controller.num_drafts(4) >= controller.num_drafts(16)
    assert controller.num_drafts(1) > 0
    assert controller.num_drafts(64) == 0


def test_rejected_drafts_stop_drafting_and_it_is_tried_again_later() -> None:
    controller = DraftLengthController({1: 1.0, 4: 1.2, 9: 1.4}, 2, (0.5, 0.3))
    assert controller.num_drafts() > 0
    for _ in range(300):
        controller.record_drafts(tried=2, accepted=0)
    assert controller.num_drafts() == 0
    assert controller.acceptance[0] < 0.01
    for _ in range(300):
        controller.record_drafts(tried=0, accepted=0)
    assert controller.num_drafts() > 0


def test_drafting_stops_when_larger_steps_become_slow() -> None:
    controller = DraftLengthController({1: 1.0, 4: 1.1, 9: 1.2}, 2, (0.5, 0.3))
    assert controller.num_drafts() == 2
    for _ in range(60):
        controller.record_time(9, 2.5)
        controller.record_time(4, 2.0)
        controller.record_time(1, 1.0)
        controller.record_time(17, 9.0)  # sizes that were not measured at the start are ignored
    assert controller.num_drafts() == 0


def test_an_interrupted_forward_pass_does_not_stop_drafting() -> None:
    times = {1: 1.0, 2: 1.05, 4: 1.1}
    controller = DraftLengthController(times, 3, (0.6, 0.4, 0.2), head_seconds=0.01)
    assert drafts(controller, 0.9) == 3
    for rows in times:
        controller.record_time(rows, 100.0)
    assert drafts(controller, 0.9) == 3, "all were interrupted"
    for _ in range(100):
        controller.record_time(1, 1.0)
        controller.record_time(2, 3.0)
    assert drafts(controller, 0.9) == 0, "it is as slow all the time"
    for _ in range(3000):
        controller.record_time(1, 1.0)
    assert drafts(controller, 0.9) == 3, "what is not run follows what is"


def test_copying_stops_when_it_is_not_worth_its_cost_and_is_tried_again() -> None:
    controller = DraftLengthController({1: 1.0, 9: 1.5}, 1)
    assert controller.num_copied(8) >= 4
    for _ in range(20):
        controller.record_copied(8, 0)
    assert controller.num_copied(8) == 0
    for _ in range(1000):
        controller.record_copied(0, 0)
    assert controller.num_copied(8) >= 4
    assert DraftLengthController({1: 1.0, 9: 9.0}, 1).num_copied(8) == 0


def drafts(controller: DraftLengthController, confidence: float, others: int = 1, conversations: int = 1) -> int:
    """How many tokens a draft head drafts in a row with the same confidence in each."""
    count = 0
    while controller.worth_drafting([confidence] * count, others, conversations):
        count += 1
    return count


def test_a_draft_head_drafts_as_long_as_a_row_is_worth_its_time() -> None:
    cost, acceptance = {1: 1.0, 4: 1.06, 8: 1.3}, (0.6, 0.36, 0.22, 0.13, 0.08, 0.05, 0.03)
    controller = DraftLengthController(cost, 7, acceptance, head_seconds=0.02)
    assert drafts(controller, 0.95) == 7
    assert 1 <= drafts(controller, 0.3) < drafts(controller, 0.6) < 7
    assert drafts(DraftLengthController(cost, 7, acceptance, head_seconds=0.9), 0.95) == 0
    assert drafts(DraftLengthController({1: 1.0, 8: 8.0}, 7, acceptance, head_seconds=0.0), 0.95) == 0
    assert controller.num_drafts() == 0, "an adapter's noise rows are not used in addition"


def test_a_draft_head_drafts_less_when_more_conversations_share_the_forward_pass() -> None:
    cost, acceptance = {1: 1.0, 8: 1.3, 64: 6.0}, (0.6, 0.36, 0.22, 0.13)
    controller = DraftLengthController(cost, 4, acceptance, head_seconds=0.02)
    assert drafts(controller, 0.6) > drafts(controller, 0.6, conversations=16)
    assert drafts(controller, 0.6) > drafts(controller, 0.6, others=20), "forced tokens have rows, too"


def test_a_draft_head_whose_drafts_are_rejected_stops_and_is_tried_again() -> None:
    controller = DraftLengthController({1: 1.0, 2: 1.1}, 1, (0.5,), head_seconds=0.05)
    assert drafts(controller, 0.5) == 1
    for _ in range(200):
        controller.record_drafts(1, 0)
    assert drafts(controller, 0.5) == 0
    for _ in range(200):
        controller.record_drafts(0, 0)
    assert drafts(controller, 0.5) == 1


def test_another_choice_is_verified_while_its_row_is_worth_its_time() -> None:
    acceptance = (0.6, 0.36, 0.22)
    controller = DraftLengthController({1: 1.0, 4: 1.06, 6: 1.1, 8: 1.5}, 3, acceptance, head_seconds=0.02)
    assert controller.num_others([0.2, 0.15, 0.02], 4) == 2
    assert controller.num_others([0.2] * 8, 4) == 2, "the seventh row costs more"
    assert controller.num_others([0.2], 4, conversations=16) == 0
    free = DraftLengthController({1: 1.0}, 3, acceptance, head_seconds=0.0)
    assert free.num_others([0.01] * 9, 5) == 3 and free.num_others([0.9], 8) == 0, "a step has eight rows at most"
    assert free.num_others([0.9], 20) == 0, "forced tokens have rows, too"


COST, ACCEPTANCE = {1: 1.0, 4: 1.06, 6: 1.1, 8: 1.5}, (0.6, 0.36, 0.22)


def test_more_rows_than_pay_are_run_now_and_then_to_time_them_again() -> None:
    controller, costly = (DraftLengthController(one, 3, ACCEPTANCE, 0.02) for one in (COST, {**COST, 8: 2.5}))
    counts, chances = list[int](), [0.1] * 6
    for _ in range(200):
        counts.append(controller.num_others(chances, 4))
        assert costly.num_others(chances, 4) < 4, "a trial may not take too long"
        for each, count in ((controller, counts[-1]), (costly, costly.num_others(chances, 4))):
            each.record_time(4 + count, COST[8] if count == 4 else 1.06)
    assert counts[0] < 4 and 4 <= counts.count(4) <= 8
    for _ in range(200):
        assert controller.num_others(chances[:2], 4) == 2, "there are too few of them to try eight rows"
        controller.record_time(6, 1.1)
    for _ in range(200):
        controller.record_time(4 + controller.num_others(chances, 4), 1.1)
    assert controller.num_others(chances, 4) == 4, "eight rows cost little by now"


@pytest.mark.parametrize(
    "costs", [{1: 1.0, 2: 1.01, 4: 1.03, 6: 1.1, 8: 1.2}, {1: 1.0, 2: 1.15, 4: 1.5, 6: 1.9, 8: 2.4}]
)
def test_a_slow_while_is_forgotten(costs: dict[int, float]) -> None:
    controller, real = (DraftLengthController(costs, 5, (0.6, 0.36, 0.22, 0.13, 0.08), 0.01) for _ in range(2))

    def rows(slowdown: float, passes: int) -> float:
        """Rows of a step, on average."""
        total = 0
        for _ in range(passes):
            count = 1 + drafts(controller, 0.5)
            count += controller.num_others([0.2, 0.2, 0.1, 0.1, 0.06, 0.05], count)
            controller.record_time(count, slowdown * real.step_seconds(count))
            total += count
        return total / passes

    before = rows(1.0, 100)
    rows(2.0, 100)
    rows(1.0, 150)
    assert rows(1.0, 100) == pytest.approx(before, abs=0.5)


def test_other_choices_are_expected_to_be_right_as_often_as_they_have_been() -> None:
    controller = DraftLengthController({1: 1.0, 8: 1.3}, 3, (0.6, 0.36, 0.22), head_seconds=0.02)
    assert controller.num_others([0.15], 4) == 1
    initial = controller.others_right
    for _ in range(300):
        controller.record_others(0.3, False)
    assert controller.others_right < 0.05 and controller.num_others([0.15], 4) == 0
    for _ in range(300):
        controller.record_others(0.0, False)
    assert controller.others_right == pytest.approx(initial, rel=0.05), "they are tried again"
    for n in range(300):
        controller.record_others(0.25, n % 4 == 0)
    assert controller.others_right == pytest.approx(1.0, rel=0.2)


def test_copying_must_be_faster_than_drafting() -> None:
    cost = {1: 1.0, 9: 1.5}
    assert DraftLengthController(cost, 3, (0.2, 0.1, 0.05), head_seconds=0.02).num_copied(8) > 0
    assert DraftLengthController(cost, 3, (0.95, 0.92, 0.9), head_seconds=0.0).num_copied(8) == 0


@pytest.mark.parametrize(
    ("effort", "max_steps", "most"),
    [("instant", None, 1), ("low", None, 1), ("medium", None, 2), ("high", None, 3), ("high", 1, 1), ("instant", 3, 3)],
)
def test_effort_bounds_the_denoising_steps_of_a_block(effort: Effort, max_steps: int | None, most: int) -> None:
    by_steps = ([0.3, 0.1], [0.6, 0.4], [0.9, 0.8])
    controller = DraftLengthController({1: 1.0, 9: 1.2}, 2, by_steps[0], 0.01, 0.01, by_steps)
    assert controller.denoising_steps(schedule_for_effort(effort, max_steps).draft_steps) == most


def test_a_denoising_step_that_does_not_pay_is_not_taken() -> None:
    controller = DraftLengthController({1: 1.0, 9: 1.2}, 2, [0.6, 0.4], 0.01, 0.5, ([0.6, 0.4], [0.61, 0.4]))
    assert controller.denoising_steps(3) == 1
