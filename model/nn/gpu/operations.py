"""The operations of a step's forward pass on a GPU, each of which is one kernel (the last is two): what they compute
and with which arguments. `triton_operations.py` and `torch_operations.py` implement them.

Sums are in float32 and results are rounded once, to the dtype of the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from model.nn.adapter import FusedLowRank
from model.nn.gpu.block_matrix import BlockWeight
from model.nn.gpu.stored_weights import StoredLinear
from model.nn.layer import Layer
from model.nn.linear import FloatLinear, Linear
from model.nn.rotary import RotaryEmbedding
from model.nn.step_pass import StepShape

Weight = Tensor | BlockWeight


@dataclass(frozen=True)
class Projection:
    """Projections of the same input, with what the adapter adds to them for draft rows.

    Attributes:
        weight: [columns, depth], the projections one below the other: floats, or blocks as a GGUF file stores them.
        bias: [columns], or None.
        a: [projections × rank, depth], or None without an adapter.
        b: [columns, rank], or None without an adapter. The part of each projection belongs to its part of `a`.
        sizes: columns of each projection.
    """

    weight: Weight
    bias: Tensor | None
    a: Tensor | None
    b: Tensor | None
    sizes: tuple[int, ...]

    @staticmethod
    def of(linear: Linear, sizes: tuple[int, ...], low: FusedLowRank | None) -> Projection:
        """The projection of a layer, and the adapter's delta for it.

        Raises:
            ValueError: the weights are int8.
        """
        if not isinstance(linear, FloatLinear | StoredLinear):
            raise ValueError("a GPU's kernels cannot read int8 weights: load them as bfloat16 or float32")
        if low is None:
            return Projection(linear.weight, linear.bias, None, None, sizes)
        return Projection(linear.weight, linear.bias, low.a.contiguous(), torch.cat(low.b), sizes)

    @property
    def rank(self) -> int:
        """Rank of the adapter, 0 without one."""
        return 0 if self.b is None else self.b.shape[1]

    @property
    def tensors(self) -> list[Tensor]:
        """Everything that a forward pass reads of it."""
        weight = [self.weight] if isinstance(self.weight, Tensor) else self.weight.tensors
        return weight + [part for part in (self.bias, self.a, self.b) if part is not None]


@dataclass(frozen=True)
class StepLayer:
    """A layer's weights for these operations. The norms are as in `Layer`."""

    attention_norm: Tensor
    query_key_value: Projection
    head_norm: Tensor | None
    output: Projection
    mlp_norm: Tensor
    gate_up: Projection
    down: Projection

    @staticmethod
    def of(layer: Layer, heads: tuple[int, int, int], low: Mapping[str, FusedLowRank] | None) -> StepLayer:
        """Group the weights of a layer and of the adapter.

        Args:
            heads: columns of the query, key and value projections.
            low: the adapter's deltas by group of projections, or None.
        """

        def group(names: str) -> FusedLowRank | None:
            return None if low is None else low[names]

        hidden, intermediate = len(layer.mlp_norm), _columns(layer.gate_up) // 2
        return StepLayer(
            layer.attention_norm,
            Projection.of(layer.query_key_value, heads, group("q k v")),
            layer.head_norm,
            Projection.of(layer.output, (hidden,), group("o")),
            layer.mlp_norm,
            Projection.of(layer.gate_up, (intermediate, intermediate), group("gate up")),
            Projection.of(layer.down, (hidden,), group("down")),
        )


def _columns(linear: Linear) -> int:
    return len(linear.weight) if isinstance(linear, FloatLinear | StoredLinear) else 0


class Operations(Protocol):
    """The operations. `rows` is the number of rows of a step; `first_draft` is the first one that goes through the
    adapter."""

    def project(
        self,
        x: Tensor,
        projection: Projection,
        first_draft: int,
        *,
        norm: Tensor | None = None,
        eps: float = 0.0,
        residual: Tensor | None = None,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """x Wᵀ + bias, and for draft rows (x Aᵀ) Bᵀ: [rows, depth] → [rows, columns].

        Args:
            norm: [depth], the weight of an RMS normalization of x that comes first.
            eps: of the normalization.
            residual: [rows, columns], added to the result.
            dtype: of the result; that of x when not given.
        """
        ...

    def gate_up(self, x: Tensor, norm: Tensor, projection: Projection, first_draft: int, eps: float) -> Tensor:
        """silu(gate) · up of normalized rows: [rows, hidden] → [rows, intermediate]."""
        ...

    def attend(
        self,
        fused: Tensor,
        positions: Tensor,
        rotary: RotaryEmbedding,
        head_norm: Tensor | None,
        eps: float,
        keys: Tensor,
        values: Tensor,
        past_length: Tensor,
        slots: Tensor,
        shape: StepShape,
    ) -> Tensor:
        """Split the fused projections into heads, normalize queries and keys if `head_norm` is given, rotate them,
        write keys and values to the cache, and let each conversation attend to its first `past_length` +
        `shape.rows_each` positions (grouped-query attention).

        Args:
            fused: [rows, (heads + 2 × kv_heads) × head_dim].
            positions: [rows] int64, to which the rows are rotated.
            rotary: the rotations of all positions.
            head_norm: [heads + kv_heads, head_dim].
            keys, values: [slots, kv_heads, capacity, head_dim], contiguous. Row r of a conversation is written to
                position `past_length` + r of its slot.
            past_length, slots: [batch] int64.
            shape: the order of the rows, and which of its conversation's rows each attends to. All attend to everything
                before them.

        Returns:
            [rows, heads × head_dim].
        """
        ...

    def predict(
        self, x: Tensor, norm: Tensor, weight: Weight, eps: float, excluded: int | None
    ) -> tuple[Tensor, Tensor]:
        """The most likely token of each row [rows] int64 (the lowest of equals) and its probability [rows] float32.

        Args:
            x: [rows, hidden], states after the last layer, not normalized.
            weight: [vocabulary, hidden].
            excluded: a token that is never predicted.
        """
        ...
