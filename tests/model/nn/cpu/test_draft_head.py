"""The draft head computes its formula, one token after the other, on features that the decoder delivers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model.checkpoint.checkpoint import open_checkpoint
from model.decode.draft import Draft
from model.decode.verify import VerificationStep
from model.nn.cpu.draft_head import BlockQuantizedDraftHead
from model.nn.decoder import Decoder
from model.nn.draft_head import Drafted, advance, normalize
from model.nn.forward_batch import num_features, text_input
from tests.model.random_draft_head import random_draft_head

FEATURES, HIDDEN, VOCABULARY = 192, 64, 300


def test_drafts_and_confidence_follow_the_formula() -> None:
    draw = torch.Generator().manual_seed(0)
    weights = random_draft_head(FEATURES, HIDDEN, VOCABULARY, seed=1)
    m, vocabulary = weights.matrices, weights.vocabulary
    table = torch.randn(VOCABULARY, HIDDEN, generator=draw)
    rows = torch.randn(len(vocabulary), HIDDEN, generator=draw)
    head = BlockQuantizedDraftHead(weights, rows @ m["output"], table.__getitem__)
    agreed = named = 0
    for _ in range(20):
        features = torch.randn(FEATURES, generator=draw)
        read = torch.randint(VOCABULARY, (3,), generator=draw).tolist()
        drafts, confidence, others = head.draft(features, read, lambda confidence: len(confidence) < 3)
        assert len(drafts) == len(confidence) == len(others) == 3
        context, state = normalize(features[None]) @ m["features"].T, None
        for token in read[:-1]:
            state, _ = advance(m, context, table[[token]], state)
        for token, draft, sure, likely in zip((read[-1], *drafts), drafts, confidence, others, strict=False):
            state, out = advance(m, context, table[[token]], state)
            chances = (rows @ out[0]).softmax(0)
            agreed += draft == int(vocabulary[int(chances.argmax())])
            own = chances[int((vocabulary == draft).nonzero())]
            assert sure == pytest.approx(float(own), abs=0.15)
            assert [chance for _, chance in likely] == sorted((chance for _, chance in likely), reverse=True)
            for other, chance in likely:
                assert other != draft and 0.05 < chance <= sure
                assert chance == pytest.approx(float(chances[int((vocabulary == other).nonzero())]), abs=0.15)
            named += len(likely)
    assert agreed >= 54, "of 60; a near tie may fall the other way, because the head's weights are rounded to 8 bits"
    assert 20 < named <= 3 * 60


def test_nothing_is_computed_when_no_draft_is_wanted() -> None:
    weights = random_draft_head(FEATURES, HIDDEN, VOCABULARY, seed=1)
    rows = torch.randn(len(weights.vocabulary), HIDDEN) @ weights.matrices["output"]
    head = BlockQuantizedDraftHead(weights, rows, torch.randn(VOCABULARY, HIDDEN).__getitem__)
    assert head.draft(torch.randn(FEATURES), [1], lambda confidence: False) == Drafted()


def test_features_are_those_of_the_rows_with_outputs_whatever_shares_the_forward_pass(tiny_qwen2: Path) -> None:
    decoder = Decoder(open_checkpoint(tiny_qwen2), torch.device("cpu"), "int8")
    cache, other = decoder.new_cache(), decoder.new_cache()
    decoder.forward([5, 6, 7], cache, logits="none")
    received: list[torch.Tensor] = []
    step = VerificationStep(9, Draft((11, 12))).forward_input(cache)
    decoder.run([text_input(other, [1, 2], 1), replace(step, on_features=received.append)])
    for count in range(1, 4):
        rows = replace(text_input(cache, [9, 11, 12][:count], 1), on_features=received.append)
        decoder.run([rows])
        assert torch.equal(received[-1][0], received[0][count - 1])
    assert received[0].shape == (3, num_features(decoder.config))
    hidden = decoder.run([text_input(cache, [9, 11, 12], 3, return_hidden_states=True)])[0]
    assert torch.equal(received[0][:, -decoder.config.hidden :], hidden)
