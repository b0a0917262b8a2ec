"""The drafter on the worker team computes what the network in plain torch does."""

from __future__ import annotations

import pytest
import torch

from model.nn.block_drafter import BlockDrafterWeights, denoise, shapes
from model.nn.cpu.block_drafter import BlockQuantizedDrafter
from model.nn.draft_head import Drafted, DraftHeadWeights, advance, normalize

ROWS, SIZE, INNER, FEATURES, HIDDEN, VOCABULARY = 5, 256, 320, 192, 96, 400


def random_drafter(layers: int = 1, seed: int = 1) -> BlockDrafterWeights:
    draw = torch.Generator().manual_seed(seed)
    outer = {
        "features": (SIZE, FEATURES), "input": (SIZE, HIDDEN + SIZE), "gate_up": (2 * INNER, SIZE),
        "down": (SIZE, INNER), "output": (HIDDEN, SIZE),
    }  # fmt: skip
    made = {
        name: torch.randn(*shape, generator=draw) / shape[-1] ** 0.5
        for name, shape in {**outer, **shapes(SIZE, INNER, layers, ROWS)}.items()
    }
    vocabulary = torch.randperm(VOCABULARY, generator=draw)[:300].sort().values
    head = DraftHeadWeights({name: made[name] for name in outer}, vocabulary, "base", {})
    return BlockDrafterWeights(head, {name: made[name] for name in made if name not in outer})


@pytest.mark.parametrize("layers", [1, 2])
def test_a_step_computes_what_plain_torch_does(layers: int) -> None:
    draw, weights = torch.Generator().manual_seed(2), random_drafter(layers)
    table, head_rows = torch.randn(VOCABULARY, HIDDEN, generator=draw), torch.randn(300, HIDDEN, generator=draw)
    drafter = BlockQuantizedDrafter(weights, head_rows @ weights.head.matrices["output"], lambda ids: table[ids])
    features, matrices = torch.randn(FEATURES, generator=draw), weights.head.matrices
    context, state = normalize(features[None]) @ matrices["features"].T, None
    drafter._head.begin(features)
    for token in (7, 90):
        drafter._head.read(token)
        state, _ = advance(matrices, context, table[[token]], state)
        expected = denoise(weights.tensors, state)[0] @ matrices["output"].T @ head_rows.T
        found = torch.from_numpy(drafter._block.run())
        assert float(found.sub(expected).abs().max() / expected.abs().max()) < 0.05


@pytest.mark.parametrize("candidates", [1, 8, 300])
def test_a_draft_is_chosen_among_its_rows_candidates_by_what_the_head_has_read(
    monkeypatch: pytest.MonkeyPatch, candidates: int
) -> None:
    draw, weights = torch.Generator().manual_seed(2), random_drafter()
    table, head_rows = torch.randn(VOCABULARY, HIDDEN, generator=draw), torch.randn(300, HIDDEN, generator=draw)
    drafter = BlockQuantizedDrafter(weights, head_rows @ weights.head.matrices["output"], lambda ids: table[ids])
    monkeypatch.setattr("model.nn.cpu.block_drafter.CANDIDATES", candidates)
    monkeypatch.setattr("model.nn.cpu.block_drafter.NEAR", 1e9)
    features = torch.randn(FEATURES, generator=draw)
    drafts, confidence, others = drafter.draft(features, [7], lambda confidence: True)
    assert len(drafts) == len(confidence) == ROWS and all(0 < chance <= 1 for chance in confidence)
    drafter._head.begin(features)
    drafter._head.read(7)
    rows, logit_rows = torch.from_numpy(drafter._block.run()).clone(), head_rows @ weights.head.matrices["output"]
    assert len(others) == ROWS
    for row, (read, denoised), draft, chance, likely in zip(
        rows, weights.tensors["mix"], drafts, confidence, others, strict=True
    ):
        scores = denoised * row + read * logit_rows @ torch.from_numpy(drafter._head.state[0])
        near = row.topk(candidates).indices
        chances = scores[near].softmax(0)
        place = (weights.vocabulary[near] == draft).nonzero()
        assert len(place) == 1 and float(chances.max() - chances[place[0, 0]]) < 0.05  # the tables are quantized
        assert abs(float(chances[place[0, 0]]) - chance) < 0.1
        for other, less in likely:
            (where,) = (weights.vocabulary[near] == other).nonzero().flatten().tolist()
            assert other != draft and less <= chance and abs(float(chances[where]) - less) < 0.1
        drafter._head.read(draft)
    assert drafter.draft(features, [7], lambda confidence: len(confidence) < 2).tokens == drafts[:2]
    assert drafter.draft(features, [7], lambda confidence: False) == Drafted()


def test_each_step_denoises_what_follows_the_first_draft_that_is_not_confident(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw, weights = torch.Generator().manual_seed(2), random_drafter()
    table, head_rows = torch.randn(VOCABULARY, HIDDEN, generator=draw), torch.randn(300, HIDDEN, generator=draw)
    drafter = BlockQuantizedDrafter(weights, head_rows @ weights.head.matrices["output"], lambda ids: table[ids])
    runs, run = list[int](), drafter._block.run
    monkeypatch.setattr(drafter._block, "run", lambda: runs.append(1) or run())
    features = torch.randn(FEATURES, generator=draw)
    for confident, steps, expected in ((2.0, 3, 3), (0.0, 3, 1), (2.0, 1, 1)):
        monkeypatch.setattr("model.nn.cpu.block_drafter.CONFIDENT", confident)
        runs.clear()
        assert len(drafter.draft(features, [7], lambda confidence: True, steps).tokens) == ROWS
        assert len(runs) == expected
    assert drafter.steps_taken == {3: 1, 1: 2}
