"""Drafts for several conversations at once are those that the CPU's implementations make from the same file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from model.checkpoint.checkpoint import open_checkpoint
from model.nn.batch_drafter import BatchDrafter
from model.nn.block_drafter import BlockDrafterWeights, load_drafter
from model.nn.cpu.block_drafter import BlockQuantizedDrafter
from model.nn.cpu.draft_head import BlockQuantizedDraftHead
from model.nn.draft_head import Drafted
from model.nn.forward_batch import num_features
from tests.model.random_draft_head import random_block_drafter, random_draft_head

CPU, CONVERSATIONS, DRAFTS = torch.device("cpu"), 40, 3


@pytest.mark.parametrize(
    ("kind", "near", "most_wrong"), [("recurrent", 4, 0), ("diffusion", 1e9, 0), ("diffusion", 4, 5)]
)
def test_drafts_are_those_of_the_cpu_from_the_same_file(
    tiny_qwen2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, near: float, most_wrong: int
) -> None:
    """A near tie may fall the other way, because the CPU's activations are rounded to 8 bits: what is compared is every
    draft of which the CPU is sure, up to the first one of which it is not. A token that is barely a candidate for one
    of both (`NEAR`) may not be for the other."""
    for module in ("cpu.block_drafter", "batch_drafter"):
        monkeypatch.setattr(f"model.nn.{module}.NEAR", near)
    monkeypatch.setattr("model.nn.cpu.block_drafter.CANDIDATES", 64 if near < 1e9 else 1000)
    config = open_checkpoint(tiny_qwen2).config
    head = random_draft_head(num_features(config), config.hidden, config.vocab_size, seed=1, size=256)
    (head if kind == "recurrent" else random_block_drafter(head, DRAFTS)).save(tmp_path / "drafter.safetensors")
    weights = load_drafter(tmp_path / "drafter.safetensors", config, "base")
    assert isinstance(weights, BlockDrafterWeights) == (kind == "diffusion")
    draw = torch.Generator().manual_seed(2)
    table = torch.randn(config.vocab_size, config.hidden, generator=draw)
    rows = 12 * torch.randn(len(head.vocabulary), 256, generator=draw) / 16
    batch = BatchDrafter(weights, rows, table.__getitem__, CPU, torch.float32)
    alone: BlockQuantizedDrafter | BlockQuantizedDraftHead
    if isinstance(weights, BlockDrafterWeights):
        alone = BlockQuantizedDrafter(weights, rows, table.__getitem__)
    else:
        alone = BlockQuantizedDraftHead(weights, rows, table.__getitem__)
    features = torch.randn(CONVERSATIONS, num_features(config), generator=draw)
    tokens = torch.randint(config.vocab_size, (CONVERSATIONS,), generator=draw)
    found, chances = batch.draft_batch(features, tokens, DRAFTS)
    compared = wrong = 0
    for n in range(CONVERSATIONS):
        drafts, sure, _ = alone.draft(features[n], [int(tokens[n])], lambda confidence: len(confidence) < DRAFTS)
        assert len(drafts) == DRAFTS
        for place, (draft, chance) in enumerate(zip(drafts, sure, strict=True)):
            if chance < 0.75:
                break
            compared += 1
            if int(found[n, place]) != draft or abs(float(chances[n, place]) - chance) > 0.2:
                wrong += 1
                break
        one, likely, _ = batch.draft(features[n], [int(tokens[n])], lambda confidence: len(confidence) < 2)
        assert one == tuple(found[n, :2].tolist()) and likely == pytest.approx(chances[n, :2].tolist(), abs=1e-4)
    assert compared > CONVERSATIONS and wrong <= most_wrong
    assert batch.draft(features[0], [1], lambda confidence: False) == Drafted()


def test_tokens_that_are_known_are_read_before_anything_is_drafted() -> None:
    head = random_draft_head(192, 64, 300, seed=1, size=256)
    draw = torch.Generator().manual_seed(3)
    table, rows = torch.randn(300, 64, generator=draw), torch.randn(200, 256, generator=draw)
    batch = BatchDrafter(random_block_drafter(head), rows, table.__getitem__, CPU, torch.float32)
    features = torch.randn(192, generator=draw)
    read = [batch.draft(features, [token, 9], lambda confidence: True).tokens for token in range(20)]
    assert len(set(read)) > 10
