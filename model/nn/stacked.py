"""An adapter in the form that takes the fewest kernels: its A matrices are rows below the base weights, so the base's
matrix multiplication includes them, and the B matrices of a group of projections are one block-diagonal matrix. A layer
then has one kernel for each group of projections, instead of 17 in all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from model.nn.adapter import Adapter, FusedLowRank
from model.nn.decoder import AdapterHook
from model.nn.layer import Layer
from model.nn.linear import FloatLinear, Linear


class StackedAdapter:
    """Applies an adapter to the noise rows of forward passes through `layers`.

    Building it replaces the weights of the base layers by views of the stacked ones, so they are in memory once.

    Args:
        layers: the base layers, with float weights.

    Attributes:
        layers: the base layers, with the A matrices stacked below their weights.

    Raises:
        ValueError: the weights are int8.
    """

    def __init__(self, layers: Sequence[Layer], adapter: Adapter) -> None:
        groups = [adapter.fused(number) for number in range(len(layers))]
        self.layers = [_stacked_layer(layer, group) for layer, group in zip(layers, groups, strict=True)]
        self._b = [{names: _block_diagonal(low.b) for names, low in group.items()} for group in groups]

    def hook(self, layer: int, noise: slice) -> AdapterHook:
        """The hook for `Decoder.run_layer`, for a layer of `layers`, whose rows `noise` go through the adapter."""

        def add_delta(out: Tensor, names: str, x: Tensor) -> Tensor:
            b = self._b[layer][names]
            base, low = out.split_with_sizes(b.shape, dim=-1)
            base[noise].addmm_(low[noise], b.T)
            return base

        return add_delta


def _block_diagonal(parts: Sequence[Tensor]) -> Tensor:
    matrix: Tensor = torch.block_diag(*parts)  # type: ignore[no-untyped-call]
    return matrix


def _stacked_layer(layer: Layer, group: Mapping[str, FusedLowRank]) -> Layer:
    return replace(
        layer,
        query_key_value=_stacked(layer.query_key_value, group["q k v"]),
        output=_stacked(layer.output, group["o"]),
        gate_up=_stacked(layer.gate_up, group["gate up"]),
        down=_stacked(layer.down, group["down"]),
    )


def _stacked(base: Linear, low: FusedLowRank) -> FloatLinear:
    if not isinstance(base, FloatLinear):
        raise ValueError("int8 weights cannot be stacked with an adapter: load them as bfloat16 or float32")
    weight = torch.cat((base.weight, low.a))
    base.weight = weight[: len(base.weight)]
    bias = None if base.bias is None else torch.nn.functional.pad(base.bias, (0, len(low.a)))
    return FloatLinear(weight, bias)
