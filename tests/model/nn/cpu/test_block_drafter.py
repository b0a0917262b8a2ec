"""The drafter on the worker team computes what the network in plain torch does."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from model.nn.block_drafter import BlockDrafterWeights, denoise, shapes
from model.nn.cpu.block_drafter import BlockQuantizedDrafter
from model.nn.draft_head import DraftHeadWeights, advance, normalize

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
@pytest.mark.parametrize("held", [[], [1, 3]])
def test_a_step_computes_what_plain_torch_does(layers: int, held: list[int]) -> None:
    draw, weights = torch.Generator().manual_seed(2), random_drafter(layers)
    table, head_rows = torch.randn(VOCABULARY, HIDDEN, generator=draw), torch.randn(300, HIDDEN, generator=draw)
    drafter = BlockQuantizedDrafter(weights, head_rows, lambda ids: table[ids])
    features, matrices = torch.randn(FEATURES, generator=draw), weights.head.matrices
    context = normalize(features[None]) @ matrices["features"].T
    state = None
    drafter._head.begin(features)
    for token in (7, 90):
        drafter._head.read(token)
        state, _ = advance(matrices, context, table[[token]], state)
    assert state is not None
    tokens, kept = torch.tensor([0, 5, 0, 12, 0]), torch.zeros(5, dtype=torch.bool)
    kept[held] = True
    rows = context + normalize(table[tokens]) @ matrices["input"][:, :HIDDEN].T
    expected = denoise(weights.tensors, state, rows[None], kept[None])[0] @ matrices["output"].T @ head_rows.T
    for _ in range(2):  # the second step must not see the first one's rows
        found = drafter._block.run(np.array(held, np.int64), drafter._rows(tokens[held].numpy()) if held else None)
        assert float(torch.from_numpy(found).sub(expected).abs().max() / expected.abs().max()) < 0.05


def test_each_step_settles_at_least_one_token_as_the_head_would(monkeypatch: pytest.MonkeyPatch) -> None:
    draw, weights = torch.Generator().manual_seed(2), random_drafter()
    table, head_rows = torch.randn(VOCABULARY, HIDDEN, generator=draw), torch.randn(300, HIDDEN, generator=draw)
    drafter = BlockQuantizedDrafter(weights, head_rows, lambda ids: table[ids])
    features, given = torch.randn(FEATURES, generator=draw), [7, 90]
    alone, _ = drafter._head.draft(features, given, lambda confidence: len(confidence) < ROWS)
    whole = drafter.draft(features, given, lambda confidence: True)
    assert whole[0][:1] == alone[:1] and len(whole[0]) == len(whole[1]) == ROWS
    assert drafter.draft(features, given, lambda confidence: len(confidence) < 2) == (whole[0][:2], whole[1][:2])
    assert drafter.draft(features, given, lambda confidence: False) == ((), ())
    monkeypatch.setattr("model.nn.cpu.block_drafter.CONFIDENT", 2.0)
    for steps in range(1, ROWS + 1):
        assert drafter.draft(features, given, lambda confidence: True, steps)[0][:steps] == alone[:steps]


def test_confident_tokens_are_kept_and_the_others_are_predicted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    draw, weights = torch.Generator().manual_seed(2), random_drafter()
    table, head_rows = torch.randn(VOCABULARY, HIDDEN, generator=draw), torch.randn(300, HIDDEN, generator=draw)
    drafter = BlockQuantizedDrafter(weights, head_rows, lambda ids: table[ids])
    features, given = torch.randn(FEATURES, generator=draw), [7]
    once, chances = drafter.draft(features, given, lambda confidence: True)
    bound = sorted(chances[1:])[-2]
    monkeypatch.setattr("model.nn.cpu.block_drafter.CONFIDENT", bound)
    twice, _ = drafter.draft(features, given, lambda confidence: True, 2)
    kept = [n for n, chance in enumerate(chances) if n == 0 or chance >= bound]
    assert [twice[n] for n in kept] == [once[n] for n in kept] and twice[1:] != once[1:]
