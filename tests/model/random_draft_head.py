"""Untrained draft heads and block drafters, whose drafts are mostly wrong."""

from __future__ import annotations

import torch

from model.nn.block_drafter import BlockDrafterWeights, shapes
from model.nn.draft_head import DraftHeadWeights


def random_draft_head(
    num_features: int, hidden: int, vocab_size: int, seed: int, base: str = "base", size: int = 40
) -> DraftHeadWeights:
    """A small head for a model of this shape, whose weights have the checksum `base`."""
    draw = torch.Generator().manual_seed(seed)
    inner = 24
    sizes = {
        "features": (size, num_features),
        "input": (size, hidden + size),
        "gate_up": (2 * inner, size),
        "down": (size, inner),
        "output": (hidden, size),
    }
    matrices = {name: torch.randn(*shape, generator=draw) / shape[1] ** 0.5 for name, shape in sizes.items()}
    vocabulary = torch.randperm(vocab_size, generator=draw)[:200].sort().values
    return DraftHeadWeights(matrices, vocabulary, base, {})


def random_block_drafter(head: DraftHeadWeights, rows: int = 3, seed: int = 1) -> BlockDrafterWeights:
    """A block drafter of one layer with random tensors, which extends a head."""
    draw, (size, inner) = torch.Generator().manual_seed(seed), head.matrices["down"].shape
    tensors = {
        name: torch.randn(*shape, generator=draw) / shape[-1] ** 0.5
        for name, shape in shapes(size, inner, 1, rows).items()
    }
    return BlockDrafterWeights(head, tensors)
