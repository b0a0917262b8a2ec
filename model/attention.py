"""Attention of a few new rows over everything a conversation has said, and the masks that say who sees whom."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def causal_mask(rows: int, past: int, device: torch.device | None = None) -> Tensor:
    """Who sees whom when `rows` new tokens follow `past` old ones: [rows, past + rows] bool, True = sees.

    A row sees every old token, the new ones before it, and itself.
    """
    return torch.ones(rows, past + rows, dtype=torch.bool, device=device).tril_(past)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, exact: bool = False) -> Tensor:
    """Grouped-query attention.

    The query heads that share a key head are laid out as rows of one small problem, so keys are never copied out
    to every query head.

    Args:
        query: [rows, heads, head_dim].
        key, value: [kv_heads, seen, head_dim].
        mask: [rows, seen] bool, or None when every row sees everything.
        exact: compute in float64, so that a row comes out the same to the last bit whatever rows and masked
            keys are beside it. In float32 three values in ten differ between one row and nine, which int8
            rounding then carries on; drafts must not change the text, so decoding pays the 4 % that this takes.

    Returns:
        [rows, heads × head_dim].
    """
    rows, heads, size = query.shape
    kv_heads, seen, _ = key.shape
    group = heads // kv_heads
    folded = query.view(rows, kv_heads, group, size).permute(1, 2, 0, 3).reshape(1, kv_heads, group * rows, size)
    spread = None if mask is None else mask.expand(group, rows, seen).reshape(group * rows, seen)
    out = (
        _attend_in_float64(folded[0], key, value, spread)
        if exact
        else scaled_dot_product_attention(folded, key.unsqueeze(0), value.unsqueeze(0), attn_mask=spread)
    )
    return out.view(kv_heads, group, rows, size).permute(2, 0, 1, 3).reshape(rows, heads * size)


def _attend_in_float64(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    scores = torch.bmm(query.double(), key.double().transpose(1, 2)) * query.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill_(~mask, -math.inf)
    return torch.bmm(scores.softmax(-1), value.double()).to(query.dtype)
