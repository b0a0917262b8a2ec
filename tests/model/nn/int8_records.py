"""What the records of an int8 cache stand for."""

from __future__ import annotations

import torch
from torch import Tensor

from model.nn.kv_cache import group_size


def dequantized(records: Tensor, head_dim: int) -> Tensor:
    """[..., record_bytes] int8 → [..., head_dim] float32."""
    levels, scales = records[..., :head_dim], records[..., head_dim:].contiguous().view(torch.float32)
    return levels.float() * scales.repeat_interleave(group_size(head_dim), -1)
