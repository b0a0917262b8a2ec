"""The simulation obeys what must hold of any GPU: less speed is slower, more conversations wait longer, and nothing is
faster than its bytes."""

from __future__ import annotations

import pytest

from lab.benchmarks.crowd_simulation import ACCEPTANCE, Costs, simulate
from lab.benchmarks.gpu_acceptance.random_models import QWEN_05B, QWEN_15B
from model.decode.draft_length import best_num_drafts

H200 = Costs(QWEN_05B, 4800)


def test_a_step_takes_at_least_as_long_as_its_bytes() -> None:
    for costs in (H200, Costs(QWEN_15B, 4800)):
        for batch in (1, 8, 64):
            for drafts in range(5):
                least = costs.num_weights * 2 / 4800 / 1e6
                assert (
                    least < costs.step_ms(batch, drafts, 600 * batch) <= costs.step_ms(2 * batch, drafts, 1200 * batch)
                )


def test_the_number_of_drafts_falls_as_the_batch_grows_unless_the_host_takes_longest() -> None:
    sizes = (1, 8, 64)
    counts = [best_num_drafts([H200.step_ms(n, k, 600 * n) for k in range(5)], ACCEPTANCE) for n in sizes]
    assert counts == sorted(counts, reverse=True) and counts[0] == len(ACCEPTANCE) and counts[-1] < counts[0]
    assert H200.num_drafts()[1] == counts[0] and H200.num_drafts()[64] > counts[-1]


@pytest.mark.parametrize("at_once", [False, True])
def test_more_conversations_wait_longer_and_a_slower_gpu_makes_them_wait_more(at_once: bool) -> None:
    waits = []
    for costs, conversations in ((H200, 2), (H200, 64), (Costs(QWEN_05B, 480), 64)):
        outcome = simulate(costs, conversations, at_once=at_once, seconds=60)
        assert len(outcome.first_clause_ms) >= conversations and 0 < outcome.busy <= 1
        assert outcome.first_clause_ms[0] > 0
        waits.append(outcome.first_clause_ms[int(0.95 * len(outcome.first_clause_ms))])
    assert waits == sorted(waits)


def test_a_simulation_repeats_itself() -> None:
    one, other = (simulate(H200, 8, seed=3, seconds=30) for _ in range(2))
    assert one == other


def test_prompts_that_are_read_together_cost_little_more_than_one() -> None:
    """With an attention for each, 16 take 38 ms longer, whichever GPU it is."""
    looped = Costs(QWEN_15B, 4800, looped=True)
    one, many = (H200.prompt_ms(16, 0, count) for count in (1, 16))
    assert many == one
    assert looped.prompt_ms(16, 0, 16) - looped.prompt_ms(16, 0, 1) > 35


def test_a_model_that_nothing_drafts_for_commits_a_token_a_step() -> None:
    outcome = simulate(Costs(QWEN_15B, 4800, max_drafts=0), 1, at_once=True)
    assert set(outcome.num_drafts.values()) == {0}
    assert outcome.tokens_per_s < 1e3 / outcome.step_ms[0] < 1.1 * outcome.tokens_per_s
