"""Options that share rows have the probabilities that each has alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.checkpoint.checkpoint import open_checkpoint
from model.decode.option_tree import OptionTree
from model.nn.decoder import Decoder

PROMPT = [3, 1, 4, 1, 5]
STOP = (0, 7)


@pytest.fixture(scope="module")
def decoder(tiny_qwen2: Path) -> Decoder:
    return Decoder(open_checkpoint(tiny_qwen2), torch.device("cpu"), "float32")


def alone(decoder: Decoder, option: list[int]) -> torch.Tensor:
    """Log-probability of an option and its end, read as plain text."""
    logits = decoder.forward([*PROMPT, *option], decoder.new_cache(), logits="all").log_softmax(-1)[len(PROMPT) - 1 :]
    tokens = sum((logits[n, token] for n, token in enumerate(option)), torch.tensor(0.0))
    return tokens + logits[len(option), list(STOP)].logsumexp(0)


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple), min_size=1, max_size=6, unique=True),
    st.integers(1, len(PROMPT)),
)
def test_probabilities_are_those_of_each_option_alone(
    decoder: Decoder, options: list[tuple[int, ...]], num_rest: int
) -> None:
    tree, cache = OptionTree(options, STOP), decoder.new_cache()
    if num_rest < len(PROMPT):
        decoder.forward(PROMPT[:-num_rest], cache, logits="none")
    (logits,) = decoder.run([tree.forward_input(cache, PROMPT[-num_rest:])])
    expected = torch.stack([alone(decoder, list(option)) for option in options]).softmax(0)
    assert torch.allclose(torch.tensor(tree.probabilities(logits)), expected, atol=1e-4)


def test_common_beginnings_are_read_once() -> None:
    assert OptionTree([[1, 2, 3], [1, 2, 4], [1], [5]], STOP).num_nodes == 5
