"""Logit bias and penalties, row by row."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.decode.draft import Alternative, paths
from model.decode.sampling import Sampling
from model.decode.token_bias import TokenBias

VOCABULARY = 6
TOKENS = st.lists(st.integers(0, VOCABULARY - 1), max_size=5)
PENALTIES = st.sampled_from((-2.0, 0.0, 0.5, 2.0))
BIASES = st.dictionaries(st.integers(0, VOCABULARY - 1), st.sampled_from((-100.0, -0.5, 3.0)))


def biased(sampling: Sampling, text: list[int]) -> torch.Tensor:
    """OpenAI's formula for the token after a text, from logits of 0."""
    counts = torch.tensor([float(text.count(token)) for token in range(VOCABULARY)])
    biases = torch.tensor([sampling.logit_bias.get(token, 0.0) for token in range(VOCABULARY)])
    return biases - counts * sampling.frequency_penalty - (counts > 0) * sampling.presence_penalty


@given(text=TOKENS, later=TOKENS, draft=TOKENS, other=TOKENS, frequency=PENALTIES, presence=PENALTIES, bias=BIASES)
def test_each_row_is_judged_by_the_text_before_it_drafts_included(
    text: list[int],
    later: list[int],
    draft: list[int],
    other: list[int],
    frequency: float,
    presence: float,
    bias: dict[int, float],
) -> None:
    sampling = Sampling(frequency_penalty=frequency, presence_penalty=presence, logit_bias=bias)
    response = TokenBias(sampling)
    response.commit(text)
    response.apply(torch.zeros(1, VOCABULARY), paths(()))
    response.commit(later)
    logits, before = torch.zeros(3 + len(draft) + len(other), VOCABULARY), draft[: len(draft) // 2]
    response.apply(logits, paths(draft, [Alternative(len(before), tuple(other))]))
    rows = [[], *(draft[:n] for n in range(1, len(draft) + 1))]
    rows += [[*before, *other[:n]] for n in range(1, len(other) + 1)]
    expected = torch.stack([biased(sampling, [*text, *later, *row]) for row in rows])
    assert torch.equal(logits[: len(rows)], expected)
    assert not logits[len(rows) :].any(), "rows that choose drafts are left alone"


@pytest.mark.parametrize("field", ["frequency_penalty", "presence_penalty"])
def test_a_penalty_out_of_range_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} is 2.5 and must be between -2 and 2"):
        Sampling(**{field: 2.5})
