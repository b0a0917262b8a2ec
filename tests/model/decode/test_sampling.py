"""Sampling: top-k, top-p, confidence and entropy, each against its definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.decode.sampling import (
    Sampler,
    Sampling,
    entropy_of,
    likely_tokens,
    probabilities,
    token_at,
    token_probabilities,
)


@given(
    logits=st.lists(st.integers(-80, 80).map(lambda n: n / 10), min_size=2, max_size=12, unique=True),
    top_k=st.integers(0, 12),
    top_p=st.floats(0.05, 1.0),
)
def test_top_k_and_top_p_keep_the_likeliest_tokens_and_a_distribution(
    logits: list[float], top_k: int, top_p: float
) -> None:
    distribution = probabilities(torch.tensor(logits), Sampling(temperature=0.7, top_k=top_k, top_p=top_p))
    kept = distribution > 0
    assert distribution.sum().item() == pytest.approx(1, abs=1e-5)
    assert kept[int(torch.tensor(logits).argmax())]
    if top_k:
        floor = sorted(logits, reverse=True)[min(top_k, len(logits)) - 1]
        assert all(value >= floor for value, keep in zip(logits, kept.tolist(), strict=True) if keep)


@given(
    seed=st.integers(0, 99),
    sampling=st.builds(
        Sampling, temperature=st.floats(0.1, 2), top_k=st.integers(0, 9), top_p=st.sampled_from([0.3, 0.9, 1.0])
    ),
)
def test_distributions_of_several_rows_are_those_of_each_row(seed: int, sampling: Sampling) -> None:
    logits = torch.randn(2, 3, 9, generator=torch.Generator().manual_seed(seed))
    together = probabilities(logits, sampling)
    alone = torch.stack([torch.stack([probabilities(row, sampling) for row in rows]) for rows in logits])
    torch.testing.assert_close(together, alone)


@given(
    seed=st.integers(0, 99),
    spread=st.sampled_from([0.1, 1.0, 5.0]),
    sampling=st.builds(
        Sampling,
        temperature=st.floats(0.1, 2),
        top_k=st.sampled_from([0, 1, 20, 900]),
        top_p=st.sampled_from([0.3, 0.9, 1.0]),
    ),
    uniform=st.floats(0, 0.999),
)
def test_the_few_likely_tokens_are_those_of_the_whole_distribution(
    seed: int, spread: float, sampling: Sampling, uniform: float
) -> None:
    """Flat and peaked ones: among the flat ones, more than 256 of the 700 tokens share the probability."""
    logits = torch.randn(700, generator=torch.Generator().manual_seed(seed)) * spread
    tokens, weights = likely_tokens(logits, sampling)
    whole = torch.zeros(700).index_put((tokens,), weights)
    torch.testing.assert_close(whole, probabilities(logits, sampling), atol=1e-6, rtol=1e-4)
    chosen = int(tokens[token_at(weights, torch.tensor(uniform))])
    ends = weights.cumsum(-1).tolist()
    expected = next((int(token) for token, end in zip(tokens, ends, strict=True) if end > uniform), int(tokens[-1]))
    assert chosen == expected or min(abs(end - uniform) for end in ends) < 1e-5


def test_the_vocabulary_is_not_sorted_for_a_token() -> None:
    logits = torch.randn(151_936, generator=torch.Generator().manual_seed(0)) * 4
    with torch.profiler.profile(record_shapes=True) as profile:
        Sampler(Sampling(0.6, top_k=20, top_p=0.9)).sample_at(logits, 0)
        Sampler(Sampling(0.6, top_p=0.9)).sample_at(logits, 0)
    sorts = [event for event in profile.key_averages(group_by_input_shape=True) if event.key == "aten::sort"]
    assert all(event.input_shapes and event.input_shapes[0][-1] <= 256 for event in sorts)


@pytest.mark.parametrize("sampling", [Sampling(0.7), Sampling(0.7, top_k=5), Sampling(0.7, top_p=0.9)])
def test_distributions_are_computed_on_the_device_of_the_logits(sampling: Sampling) -> None:
    """The meta device has no values, so copying logits from it would fail."""
    distribution = probabilities(torch.empty(3, 320, device="meta"), sampling)
    assert distribution.device.type == "meta" and distribution.shape == (3, 320)


def test_the_random_generator_is_on_the_device_of_the_logits() -> None:
    generator = Sampling(seed=5).generator(torch.device("cpu"))
    assert generator.device.type == "cpu" and generator.initial_seed() == 5


@given(logits=st.lists(st.lists(st.floats(-60, 60), min_size=7, max_size=7), min_size=1, max_size=4))
def test_confidence_and_entropy_are_those_of_the_softmax(logits: list[list[float]]) -> None:
    rows = torch.tensor(logits)
    rows[:, 3] = -torch.inf  # as for a mask token
    distribution = rows.softmax(-1)
    torch.testing.assert_close(token_probabilities(rows, rows.argmax(-1)), distribution.amax(-1), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(entropy_of(rows), torch.special.entr(distribution).sum(-1), atol=1e-4, rtol=0)


def test_a_temperature_next_to_zero_is_greedy() -> None:
    for temperature in (1e-320, 1e-30):
        distribution = probabilities(torch.tensor([1.0, 20.0, 3.0]), Sampling(temperature=temperature))
        assert distribution.tolist() == [0, 1, 0]


@pytest.mark.parametrize("settings", [{"temperature": -1}, {"temperature": 3}, {"top_k": -1}, {"top_p": 0}])
def test_sampling_out_of_range_is_rejected(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        Sampling(**settings)  # type: ignore[arg-type]


def test_variants_are_random_enough_and_always_the_same() -> None:
    greedy = Sampling()
    assert greedy.varied(0) is greedy
    first, second = greedy.varied(1), greedy.varied(2)
    assert first.temperature > 0 and first.top_k and first == greedy.varied(1) and first.seed != second.seed
    warm = Sampling(temperature=1.5, top_k=5, seed=7).varied(2)
    assert (warm.temperature, warm.top_k, warm.seed) == (1.5, 5, 9)
