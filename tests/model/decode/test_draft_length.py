"""The draft length follows the measured cost of forward passes and the acceptance of drafts."""

from __future__ import annotations

from model.decode.draft_length import DraftLengthController, num_rows


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


def test_step_time_is_interpolated_between_measured_sizes() -> None:
    controller = DraftLengthController({1: 1.0, 9: 3.0}, 1)
    assert controller.step_seconds(5) == 2.0
    assert controller.step_seconds(17) == 5.0
    assert DraftLengthController({1: 1.0}, 0).num_drafts() == 0


def test_measurement_noise_never_makes_more_rows_faster() -> None:
    controller = DraftLengthController({1: 10.0, 4: 10.1, 9: 10.3, 16: 10.2}, 3, (0.5, 0.3, 0.1))
    assert controller.step_seconds(16) == 10.3
    assert controller.step_seconds(1024) > controller.step_seconds(256) > 10.3


def test_drafting_stops_when_larger_steps_become_slow() -> None:
    controller = DraftLengthController({1: 1.0, 4: 1.1, 9: 1.2}, 2, (0.5, 0.3))
    assert controller.num_drafts() == 2
    for _ in range(60):
        controller.record_time(9, 2.5)
        controller.record_time(4, 2.0)
        controller.record_time(17, 9.0)  # sizes that were not measured at the start are ignored
    assert controller.num_drafts() == 0


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
