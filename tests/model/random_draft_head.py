"""An untrained draft head, whose drafts are mostly wrong."""

from __future__ import annotations

import torch

from model.nn.draft_head import DraftHeadWeights


def random_draft_head(
    num_features: int, hidden: int, vocab_size: int, seed: int, base: str = "base"
) -> DraftHeadWeights:
    """A small head for a model of this shape, whose weights have the checksum `base`."""
    draw = torch.Generator().manual_seed(seed)
    size, inner = 40, 24
    shapes = {
        "features": (size, num_features),
        "input": (size, hidden + size),
        "gate_up": (2 * inner, size),
        "down": (size, inner),
        "output": (hidden, size),
    }
    matrices = {name: torch.randn(*shape, generator=draw) / shape[1] ** 0.5 for name, shape in shapes.items()}
    vocabulary = torch.randperm(vocab_size, generator=draw)[:200].sort().values
    return DraftHeadWeights(matrices, vocabulary, base, {})
