"""The rules of block denoising, one by one, and how many passes a block is given."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Literal

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from model.attention import block_mask, blocks_mask, causal_mask, text_mask
from model.decode.block import Block, cut, fresh, step
from model.decode.schedule import FEWEST, MOST, Schedule, passes_given, passes_needed, schedule_for
from model.sampling import Rule, Sampling
from model.transformer import MASK

V = 12


def sure_of(*said: tuple[int, float]) -> Tensor:
    """Logits [tokens, V] that give each token a probability, the rest shared evenly."""
    rows = []
    for token, chance in said:
        row = torch.full((V,), (1 - chance) / (V - 1))
        row[token] = chance
        rows.append(row.log())
    return torch.stack(rows)


@given(rows=st.integers(1, 20), past=st.integers(0, 20), size=st.integers(1, 7))
def test_a_row_sees_its_own_block_and_those_before(rows: int, past: int, size: int) -> None:
    mask = block_mask(rows, past, size)
    for q in range(rows):
        for k in range(past + rows):
            assert bool(mask[q, k]) == (k // size <= (past + q) // size)
    assert torch.equal(block_mask(rows, past, 1), causal_mask(rows, past))
    assert torch.equal(text_mask("block", rows, past, size), mask)
    assert bool(text_mask("bidirectional", rows, past, size).all())


def test_the_threshold_settles_what_is_sure_and_at_least_one() -> None:
    logits = sure_of((3, 0.95), (4, 0.5), (5, 0.92), (6, 0.3))
    block = step(fresh(4), logits, Schedule(bound=0.9), Rule(), 6)
    assert block.tokens == (3, MASK, 5, MASK)
    assert block.prefix == 1
    assert block.draft().tokens == (3, 4, 5, 6)
    unsure = step(fresh(3), sure_of((3, 0.2), (4, 0.4), (5, 0.3)), Schedule(bound=0.9), Rule(), 6)
    assert unsure.tokens == (MASK, 4, MASK)
    idle = step(fresh(3), sure_of((3, 0.2), (4, 0.4), (5, 0.3)), Schedule(bound=0.9), Rule(), 6, forced=False)
    assert idle.tokens == (MASK, MASK, MASK)


def test_what_is_masked_is_spread_over_the_passes_that_are_left() -> None:
    logits = sure_of(*[(n, 0.3 + n / 100) for n in range(5)])
    assert sum(t != MASK for t in step(fresh(5), logits, Schedule(bound=0.9), Rule(), 2).tokens) == 3
    assert step(fresh(5), logits, Schedule(bound=0.9), Rule(), 1).masked == 0


@given(st.lists(st.floats(0.15, 0.99), min_size=1, max_size=9), st.floats(0.1, 2))
def test_the_factor_rule_settles_the_largest_number_that_fits(chances: list[float], bound: float) -> None:
    logits = sure_of(*[(1, chance) for chance in chances])
    confidence = sorted(logits.softmax(-1).max(-1).values.tolist(), reverse=True)
    costs = [(n + 1) * (1 - confidence[n - 1]) for n in range(1, len(chances) + 1)]
    assume(all(abs(cost - bound) > 1e-4 for cost in costs))  # not where rounding decides
    fits = [n for n, cost in enumerate(costs, 1) if cost < bound]
    block = step(fresh(len(chances)), logits, Schedule("factor", bound), Rule(), 99)
    assert len(chances) - block.masked == max(1, max(fits, default=1))


@given(st.lists(st.floats(0.15, 0.99), min_size=1, max_size=9), st.floats(0.01, 3))
def test_the_entropy_rule_bounds_the_sum_without_its_largest(chances: list[float], bound: float) -> None:
    logits = sure_of(*[(1, chance) for chance in chances])
    spread = logits.softmax(-1)
    entropy = sorted((-(spread * spread.log()).sum(-1)).tolist())
    fits = [k for k in range(1, len(chances) + 1) if sum(entropy[: k - 1]) <= bound + 1e-5]
    block = step(fresh(len(chances)), logits, Schedule("entropy", bound), Rule(), 99)
    assert abs(len(chances) - block.masked - max(fits)) <= (0 if abs(sum(entropy) - bound) > 1e-3 else 1)


@given(
    text=st.integers(0, 9),
    past=st.integers(0, 9),
    sizes=st.lists(st.integers(1, 5), max_size=4),
    inside=st.sampled_from(["causal", "bidirectional"]),
    reads=st.sampled_from(["causal", "block"]),
)
def test_blocks_see_what_stands_before_them_and_are_seen_by_nothing_before(
    text: int,
    past: int,
    sizes: list[int],
    inside: Literal["causal", "bidirectional"],
    reads: Literal["causal", "block"],
) -> None:
    own = text_mask(reads, text, past, 3)[:, past:]
    mask = blocks_mask(own, sizes, inside)
    block = [-1] * text + [n for n, size in enumerate(sizes) for _ in range(size)]
    for q, k in itertools.product(range(len(block)), repeat=2):
        if block[q] == block[k] == -1:
            wanted = bool(own[q, k])
        elif block[q] == block[k]:
            wanted = inside == "bidirectional" or k <= q
        else:
            wanted = block[k] < block[q]
        assert bool(mask[q, k]) == wanted


def test_a_token_that_is_no_longer_believed_in_is_masked_again_but_the_block_gets_on() -> None:
    block = Block((3, 4, MASK, MASK))
    logits = sure_of((9, 0.9), (8, 0.9), (5, 0.95), (6, 0.96))
    after = step(block, logits, Schedule(bound=0.9, remask=0.3), Rule(), 5)
    assert after.tokens in ((MASK, 4, 5, 6), (3, MASK, 5, 6))  # two settled, so one may go back
    assert not after.quiet
    final = step(block, logits, Schedule(bound=0.9, remask=0.3), Rule(), 1)
    assert final.masked == 0  # the last pass masks nothing
    kept = step(Block((3, 4, MASK, MASK), given=2), logits, Schedule(bound=0.9, remask=0.3), Rule(), 5)
    assert kept.tokens == (3, 4, 5, 6)  # what is final is never touched


def test_editing_goes_on_until_a_pass_changes_nothing() -> None:
    """LLaDA2.1 and sglang's JointThreshold: also behind a pass that only settled the last masks."""
    schedule = Schedule(bound=0.9, edit=0.5)
    says = sure_of((3, 0.9), (8, 0.6), (5, 0.95))
    block = step(Block((3, 4, MASK)), says, schedule, Rule(), 5)
    assert block.tokens == (3, 8, 5)
    assert not block.done(schedule)
    after = step(block, says, schedule, Rule(), 4)
    assert after.tokens == (3, 8, 5)
    assert after.done(schedule)
    filled = step(fresh(3), says, Schedule(bound=0.0, edit=0.5), Rule(), 5)
    assert filled.tokens == (3, 8, 5)
    assert not filled.done(schedule)


def test_a_block_that_is_never_quiet_is_edited_sixteen_times_at_most() -> None:
    schedule, passes = Schedule(bound=0.0, edit=0.5, max_steps=2), 0
    block = fresh(2)
    while not block.done(schedule):
        block = step(block, sure_of((passes % 2, 0.9), (5, 0.9)), schedule, Rule(), 1)
        passes += 1
    assert passes == 1 + 16


def test_a_draft_shows_how_sure_each_token_is_that_it_shows() -> None:
    """A settled token is shown with its own probability, not with that of what would be said there now."""
    block = step(Block((3, 4, MASK, MASK)), sure_of((3, 0.9), (8, 0.8), (5, 0.6), (6, 0.95)), Schedule(), Rule(), 5)
    shown = block.draft()
    assert shown.tokens == (3, 4, 5, 6)
    assert shown.confidence == pytest.approx((0.9, 0.2 / (V - 1), 0.6, 0.95), rel=1e-4)


def test_a_block_in_flight_settles_nothing_that_the_entropy_rule_does_not() -> None:
    """The rule's free first token is for a block that must get on."""
    unsure, schedule = sure_of((3, 0.1), (4, 0.1)), Schedule("entropy", 0.1)
    assert step(fresh(2), unsure, schedule, Rule(), 8, forced=False).masked == 2
    assert step(fresh(2), unsure, schedule, Rule(), 8).masked == 1


def test_sampled_blocks_repeat_with_their_seed_and_follow_the_temperature() -> None:
    logits = sure_of(*[(n, 0.4) for n in range(8)])

    def draw(seed: int) -> tuple[int, ...]:
        rule = Rule(Sampling(temperature=1.0), torch.Generator().manual_seed(seed))
        return step(fresh(8), logits, Schedule(bound=0.0), rule, 1).tokens

    assert draw(1) == draw(1)
    assert len({draw(seed) for seed in range(6)}) > 1


def test_a_block_may_end_at_punctuation_but_not_before_a_gap() -> None:
    closes = {7}.__contains__
    assert cut(Block((1, 2, 3, 7, 5, MASK)), closes, 3).tokens == (1, 2, 3, 7)
    assert cut(Block((1, 7, 3, 4, 5, MASK)), closes, 3).tokens == (1, 7, 3, 4, 5, MASK)
    assert cut(Block((1, 2, MASK, 7, 5, 6)), closes, 3).tokens == (1, 2, MASK, 7, 5, 6)


def test_effort_maps_to_bounds_and_passes_and_max_steps_overrides() -> None:
    efforts = [schedule_for(effort) for effort in ("instant", "low", "medium", "high")]
    assert [e.bound for e in efforts] == sorted(e.bound for e in efforts)
    assert [e.max_steps for e in efforts] == sorted(e.max_steps for e in efforts)
    assert efforts[-1].max_steps == MOST
    assert schedule_for("low", 2).max_steps == 2
    assert schedule_for("medium", rule="factor").bound == 1.0
    assert schedule_for("low", edit=0.5) == replace(schedule_for("low"), edit=0.5)
    with pytest.raises(ValueError, match="a probability of 2 on, which must lie between 0 and 1"):
        schedule_for("low", edit=2)
    with pytest.raises(ValueError, match="9 blocks in flight are asked for, and there may be 1 to 8"):
        schedule_for("low", in_flight=9)
    with pytest.raises(ValueError, match="max_steps is 99 and must lie between 1 and 64"):
        schedule_for("low", 99)


def test_the_first_pass_tells_how_many_a_block_needs() -> None:
    schedule = schedule_for("high")
    sure, unsure, lost = [0.99] * 8, [0.9, 0.6, 0.7, 0.8], [0.2] * 16
    needed = [passes_needed(confidence, schedule) for confidence in (sure, unsure, lost)]
    assert needed[0] == 1
    assert 2 <= needed[1] <= 5
    assert needed[2] == MOST
    assert passes_needed([0.2] * 16, schedule_for("instant")) == 3


@given(wanted=st.integers(1, 8), affordable=st.integers(0, 20))
def test_a_deadline_takes_passes_away_within_bounds(wanted: int, affordable: int) -> None:
    given_ = passes_given(wanted, affordable)
    assert min(wanted, FEWEST) <= given_ <= wanted
    assert given_ <= max(FEWEST, affordable)
