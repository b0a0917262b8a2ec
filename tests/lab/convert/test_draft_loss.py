"""The noise rows, their mask and the loss, each against its definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lab.convert.corpus import TrainingText
from lab.convert.draft_loss import (
    NoiseBlocks,
    draft_loss_gradient,
    noise_attention_mask,
    noise_hidden_states,
    partially_unmasked,
    sample_blocks,
)
from lab.convert.padded_batch import PaddedBatch
from model.engine.loader import LoadedModel
from model.nn.adapter import random_adapter
from model.nn.forward_batch import MASK, ForwardInput
from tests.lab.convert.tiny_corpus import TOKENS


@given(size=st.integers(1, 4), starts=st.lists(st.integers(0, 9), min_size=1, max_size=4))
def test_a_noise_row_attends_to_the_clean_tokens_before_its_block_and_to_its_own_block(
    size: int, starts: list[int]
) -> None:
    rows = len(starts) * size
    blocks = NoiseBlocks(
        size, torch.tensor([starts]), torch.full((1, rows), MASK), torch.ones(1, rows, dtype=torch.bool)
    )
    mask = noise_attention_mask(blocks, 12)[0]
    for q in range(rows):
        for k in range(12 + rows):
            own_block = (k - 12) // size == q // size and k - 12 <= q
            expected = k < starts[q // size] if k < 12 else own_block
            assert bool(mask[q, k]) == expected


def test_noise_rows_in_training_match_those_in_decoding(model: LoadedModel) -> None:
    """The student's rows against the decoder's forward pass, with a random adapter."""
    adapter = random_adapter(model.decoder.config, 4, 3, seed=5)
    batch = PaddedBatch(model.decoder, 1, 40)
    batch.forward(torch.tensor([TOKENS[:20]]), torch.zeros(1, dtype=torch.long))
    blocks = NoiseBlocks(3, torch.tensor([[8, 15]]), torch.full((1, 6), MASK), torch.ones(1, 6, dtype=torch.bool))
    ours = noise_hidden_states(model.decoder, adapter, batch, 20, blocks)[0]
    for n, start in enumerate((8, 15)):
        cache = model.decoder.new_cache()
        model.decoder.forward(TOKENS[:start], cache, logits="none")
        mask = torch.ones(3, 3).tril().bool()
        forward_input = ForwardInput(cache, [MASK] * 3, range(start, start + 3), mask, [True] * 3, 3)
        (logits,) = model.decoder.run([forward_input], adapter)
        torch.testing.assert_close(model.decoder.head(ours[n * 3 : n * 3 + 3]), logits, atol=1e-4, rtol=1e-4)


def test_blocks_lie_within_the_generated_spans(model: LoadedModel) -> None:
    text = TrainingText(TOKENS, ((6, 14), (20, 40)), "chat")
    blocks = sample_blocks([text], 4, 30, torch.Generator().manual_seed(3))
    for start, valid in zip(blocks.starts[0].tolist(), blocks.valid.view(-1, 4).tolist(), strict=True):
        end = 14 if start < 14 else 40
        assert 6 <= start < 13 or 20 <= start < 39
        assert valid in ([start + s + 1 < end for s in range(4)], [False] * 4)
    unmasked = partially_unmasked(
        blocks, torch.full((1, 8), 5), torch.tensor([TOKENS]), torch.Generator().manual_seed(1)
    )
    inputs = [token for token in unmasked.tokens[0].tolist() if token != MASK]
    assert 0 < len(inputs) <= 8
    assert (unmasked.tokens[0, 8:] == MASK).all()


def reference_loss(weight: Tensor, student: Tensor, teacher: Tensor, blocks: NoiseBlocks) -> Tensor:
    target, prediction = (teacher @ weight.T).softmax(-1), (student @ weight.T).softmax(-1)
    variation = 0.5 * (target - prediction).abs().sum(-1)
    entropy = -(target * prediction.log()).sum(-1)
    decay = torch.tensor([0.9 ** (n % blocks.size) for n in range(blocks.tokens.shape[1])])
    weights = decay * blocks.valid
    return ((0.7 * variation + 0.3 * entropy) * weights).sum() / weights.sum()


def test_the_loss_and_its_gradient_match_the_definition(model: LoadedModel) -> None:
    draw = torch.Generator().manual_seed(2)
    states = [torch.randn(2, 6, model.decoder.config.hidden, generator=draw) for _ in range(2)]
    valid = torch.tensor([[True] * 6, [True, True, False, True, True, True]])
    blocks = NoiseBlocks(3, torch.tensor([[1, 2], [3, 4]]), torch.full((2, 6), MASK), valid)
    student = states[0].requires_grad_()
    expected = reference_loss(model.decoder.head_weight, student, states[1], blocks)
    (expected_gradient,) = torch.autograd.grad(expected, student)
    gradient, value, _ = draft_loss_gradient(
        model.decoder, student, states[1], blocks, cross_entropy=0.3, variation=0.7, decay=0.9
    )
    assert value == pytest.approx(float(expected.detach()), rel=1e-4)
    torch.testing.assert_close(gradient, expected_gradient, atol=1e-6, rtol=1e-3)
