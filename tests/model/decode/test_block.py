"""The rules of block denoising, one by one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from model.decode.block import Block, denoise_step, new_block, truncate_after
from model.decode.effort import DenoisingSchedule
from model.decode.sampling import Sampler, Sampling
from model.nn.forward_batch import MASK

VOCABULARY = 12


def logits_of(*predictions: tuple[int, float]) -> Tensor:
    """Logits [tokens, VOCABULARY] that give each token a probability, with the rest shared evenly."""
    rows = []
    for token, probability in predictions:
        row = torch.full((VOCABULARY,), (1 - probability) / (VOCABULARY - 1))
        row[token] = probability
        rows.append(row.log())
    return torch.stack(rows)


def test_the_threshold_rule_unmasks_confident_tokens_and_at_least_one() -> None:
    schedule = DenoisingSchedule(bound=0.9)
    logits = logits_of((3, 0.95), (4, 0.5), (5, 0.92), (6, 0.3))
    block = denoise_step(new_block(4), logits, schedule, Sampler(), 6)
    assert block.tokens == (3, MASK, 5, MASK)
    assert block.unmasked_prefix == 1
    assert block.draft().tokens == (3, 4, 5, 6)
    unsure = logits_of((3, 0.2), (4, 0.4), (5, 0.3))
    assert denoise_step(new_block(3), unsure, schedule, Sampler(), 6).tokens == (MASK, 4, MASK)
    not_forced = denoise_step(new_block(3), unsure, schedule, Sampler(), 6, forced=False)
    assert not_forced.tokens == (MASK, MASK, MASK)


def test_masked_tokens_are_spread_over_the_remaining_steps() -> None:
    schedule = DenoisingSchedule(bound=0.9)
    logits = logits_of(*[(n, 0.3 + n / 100) for n in range(5)])
    assert sum(token != MASK for token in denoise_step(new_block(5), logits, schedule, Sampler(), 2).tokens) == 3
    assert denoise_step(new_block(5), logits, schedule, Sampler(), 1).num_masked == 0


@given(st.lists(st.floats(0.15, 0.99), min_size=1, max_size=9), st.floats(0.1, 2))
def test_the_factor_rule_unmasks_the_largest_number_that_fits(probabilities: list[float], bound: float) -> None:
    logits = logits_of(*[(1, probability) for probability in probabilities])
    confidence = sorted(logits.softmax(-1).max(-1).values.tolist(), reverse=True)
    costs = [(n + 1) * (1 - confidence[n - 1]) for n in range(1, len(probabilities) + 1)]
    assume(all(abs(cost - bound) > 1e-4 for cost in costs))  # not where rounding decides
    fits = [n for n, cost in enumerate(costs, 1) if cost < bound]
    block = denoise_step(new_block(len(probabilities)), logits, DenoisingSchedule("factor", bound), Sampler(), 99)
    assert len(probabilities) - block.num_masked == max(1, max(fits, default=1))


@given(st.lists(st.floats(0.15, 0.99), min_size=1, max_size=9), st.floats(0.01, 3))
def test_the_entropy_rule_bounds_the_sum_without_its_largest(probabilities: list[float], bound: float) -> None:
    logits = logits_of(*[(1, probability) for probability in probabilities])
    distribution = logits.softmax(-1)
    entropy = sorted((-(distribution * distribution.log()).sum(-1)).tolist())
    fits = [k for k in range(1, len(probabilities) + 1) if sum(entropy[: k - 1]) <= bound + 1e-5]
    block = denoise_step(new_block(len(probabilities)), logits, DenoisingSchedule("entropy", bound), Sampler(), 99)
    tolerance = 0 if abs(sum(entropy) - bound) > 1e-3 else 1
    assert abs(len(probabilities) - block.num_masked - max(fits)) <= tolerance


def test_an_unlikely_token_is_masked_again_but_the_block_makes_progress() -> None:
    block = Block((3, 4, MASK, MASK))
    logits = logits_of((9, 0.9), (8, 0.9), (5, 0.95), (6, 0.96))
    schedule = DenoisingSchedule(bound=0.9, remask=0.3)
    after = denoise_step(block, logits, schedule, Sampler(), 5)
    assert after.tokens in ((MASK, 4, 5, 6), (3, MASK, 5, 6))  # two were unmasked, so one may be masked again
    assert not after.unchanged
    last = denoise_step(block, logits, schedule, Sampler(), 1)
    assert last.num_masked == 0  # the last step masks nothing
    final = denoise_step(Block((3, 4, MASK, MASK), num_final=2), logits, schedule, Sampler(), 5)
    assert final.tokens == (3, 4, 5, 6)  # final tokens never change


def test_editing_continues_until_a_step_changes_nothing() -> None:
    """LLaDA2.1 and sglang's JointThreshold: also after a step that only unmasked the last tokens."""
    schedule = DenoisingSchedule(bound=0.9, edit=0.5)
    logits = logits_of((3, 0.9), (8, 0.6), (5, 0.95))
    block = denoise_step(Block((3, 4, MASK)), logits, schedule, Sampler(), 5)
    assert block.tokens == (3, 8, 5)
    assert not block.is_done(schedule)
    after = denoise_step(block, logits, schedule, Sampler(), 4)
    assert after.tokens == (3, 8, 5)
    assert after.is_done(schedule)
    filled = denoise_step(new_block(3), logits, DenoisingSchedule(bound=0.0, edit=0.5), Sampler(), 5)
    assert filled.tokens == (3, 8, 5)
    assert not filled.is_done(schedule)


def test_a_block_that_keeps_changing_is_edited_at_most_sixteen_times() -> None:
    schedule, steps = DenoisingSchedule(bound=0.0, edit=0.5, max_steps=2), 0
    block = new_block(2)
    while not block.is_done(schedule):
        block = denoise_step(block, logits_of((steps % 2, 0.9), (5, 0.9)), schedule, Sampler(), 1)
        steps += 1
    assert steps == 1 + 16


def test_the_confidence_of_a_draft_belongs_to_the_tokens_that_it_shows() -> None:
    """An unmasked token has its own probability, not that of the token that would be predicted there now."""
    logits = logits_of((3, 0.9), (8, 0.8), (5, 0.6), (6, 0.95))
    draft = denoise_step(Block((3, 4, MASK, MASK)), logits, DenoisingSchedule(), Sampler(), 5).draft()
    assert draft.tokens == (3, 4, 5, 6)
    assert draft.confidence == pytest.approx((0.9, 0.2 / (VOCABULARY - 1), 0.6, 0.95), rel=1e-4)


def test_a_later_block_unmasks_nothing_that_the_entropy_rule_does_not() -> None:
    """The rule always allows a first token, but only for a block that must make progress."""
    unsure, schedule = logits_of((3, 0.1), (4, 0.1)), DenoisingSchedule("entropy", 0.1)
    assert denoise_step(new_block(2), unsure, schedule, Sampler(), 8, forced=False).num_masked == 2
    assert denoise_step(new_block(2), unsure, schedule, Sampler(), 8).num_masked == 1


def test_sampled_blocks_are_repeatable_by_seed_and_vary_with_temperature() -> None:
    logits = logits_of(*[(n, 0.4) for n in range(8)])

    def sample(seed: int) -> tuple[int, ...]:
        sampler = Sampler(Sampling(temperature=1.0), torch.Generator().manual_seed(seed))
        return denoise_step(new_block(8), logits, DenoisingSchedule(bound=0.0), sampler, 1).tokens

    assert sample(1) == sample(1)
    assert len({sample(seed) for seed in range(6)}) > 1


def test_a_block_is_truncated_at_punctuation_but_not_before_a_mask() -> None:
    ends = {7}.__contains__
    assert truncate_after(Block((1, 2, 3, 7, 5, MASK)), ends, 3).tokens == (1, 2, 3, 7)
    assert truncate_after(Block((1, 7, 3, 4, 5, MASK)), ends, 3).tokens == (1, 7, 3, 4, 5, MASK)
    assert truncate_after(Block((1, 2, MASK, 7, 5, 6)), ends, 3).tokens == (1, 2, MASK, 7, 5, 6)
