"""Rotary position embedding: rotates queries and keys by angles that depend on their position.

Source: RoFormer (arXiv 2104.09864). `checkpoint/rope.py` computes the frequencies, including the changes that
long-context models make to them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from model.checkpoint.rope import RopeParameters


@dataclass(frozen=True)
class RotaryEmbedding:
    """The rotations of some positions.

    Attributes:
        cos, sin: [..., 1, head_dim]; the first half of `sin` is negated, as `rotate` expects.
        query_scale: [..., 1, 1], a factor for queries; None means 1.
    """

    cos: Tensor
    sin: Tensor
    query_scale: Tensor | None

    @staticmethod
    def of(rope: RopeParameters, context: int, device: torch.device, dtype: torch.dtype) -> RotaryEmbedding:
        """The rotations of positions 0 to `context` - 1."""
        positions = torch.arange(context)
        angles = positions.float()[:, None] * rope.frequencies
        both_halves = torch.cat((angles, angles), dim=-1)[:, None, :]
        cos, sin = (both_halves.cos() * rope.scale, both_halves.sin() * rope.scale)
        query_scale = None
        if rope.query_beta:
            scale = 1 + rope.query_beta * torch.log1p((positions // rope.query_period).float())
            query_scale = scale[:, None, None].to(device, dtype)
        sin[..., : sin.shape[-1] // 2].neg_()
        return RotaryEmbedding(cos.to(device, dtype), sin.to(device, dtype), query_scale)

    def at(self, positions: Tensor) -> RotaryEmbedding:
        """The rotations of `positions`, int64 of any shape [...]."""
        query_scale = None if self.query_scale is None else self.query_scale[positions]
        return RotaryEmbedding(self.cos[positions], self.sin[positions], query_scale)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate [..., heads, head_dim] by the angles of its positions; the first half of `sin` is negated."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)
