"""The weights of one decoder layer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from model.nn.linear import Linear


@dataclass(frozen=True)
class Layer:
    """The weights of one layer. Projections of the same input are fused into one matrix.

    Attributes:
        head_norm: [heads + kv_heads, head_dim], for backbones that normalize every query and key head.
    """

    attention_norm: Tensor
    query_key_value: Linear
    head_norm: Tensor | None
    output: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear
