"""Batch generation gives the same texts as generating one at a time."""

from __future__ import annotations

import pytest
import torch

from lab.convert.batch_generation import Prompt, generate, top_logits
from model.engine.loader import LoadedModel
from tests.lab.convert.tiny_corpus import TOKENS


def test_a_text_does_not_depend_on_the_other_texts_of_the_batch(model: LoadedModel) -> None:
    prompts = [Prompt(TOKENS[n : n + 3 + n], 9) for n in range(7)]
    together = generate(model.decoder, prompts, model.stop_tokens, batch_size=3, seed=1)
    for prompt, ours in zip(prompts, together, strict=True):
        tokens = list(prompt.tokens)
        while len(tokens) < len(prompt.tokens) + 9 and not (set(tokens[len(prompt.tokens) :]) & model.stop_tokens):
            logits = model.decoder.forward(tokens, model.decoder.new_cache(), logits="last")
            tokens.append(int(logits[0].argmax()))
        assert ours == tokens[len(prompt.tokens) :]


def test_sampled_texts_are_reproducible_with_their_seed(model: LoadedModel) -> None:
    prompts = [Prompt(TOKENS[:5], 12, 1.0)] * 4
    first, again, other = (generate(model.decoder, prompts, frozenset(), batch_size=4, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_top_logits_are_found_chunk_by_chunk(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.convert.batch_generation._HEAD_CHUNK", 50)
    states = torch.randn(5, model.decoder.config.hidden)
    values, tokens = top_logits(model.decoder, states, 4)
    expected = model.decoder.head(states).topk(4)
    torch.testing.assert_close(values, expected.values)
    assert torch.equal(tokens, expected.indices)
