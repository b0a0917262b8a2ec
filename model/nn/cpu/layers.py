"""A forward pass through the layers of a decoder with block-quantized weights.

`linear.py` multiplies, `row_kernels.py` does the rest. It computes the same as `Decoder.run_layer`, in the form that is
cheapest for few rows: the end of one multiplication is fused with the quantization for the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.checkpoint.checkpoint import DecoderConfig
from model.nn.adapter import Adapter
from model.nn.cpu import row_kernels as kernels
from model.nn.cpu.linear import BlockLinear, Operands, QuantizedActivations
from model.nn.cpu.row_attention import RowAttention
from model.nn.cpu.row_kernels import Floats, Indices
from model.nn.forward_batch import ForwardInput, ForwardInterrupted, Interruption
from model.nn.layer import Layer
from model.nn.linear import Linear
from model.nn.rotary import RotaryEmbedding


@dataclass(frozen=True)
class _Projection:
    """A matrix multiplication whose bias is added by the kernel that follows it.

    Attributes:
        names: the fused projections, as the adapter names them.
    """

    names: str
    linear: BlockLinear
    bias: Floats

    @staticmethod
    def of(names: str, linear: Linear) -> _Projection:
        assert isinstance(linear, BlockLinear)
        bias = np.zeros(linear.out_features, np.float32) if linear.bias is None else linear.bias.numpy()
        return _Projection(names, linear, bias)


@dataclass(frozen=True)
class _Weights:
    """One layer's weights in the layout of the kernels."""

    attention_norm: Floats
    query_key_value: _Projection
    head_norm: Floats
    output: _Projection
    mlp_norm: Floats
    gate_up: _Projection
    down: _Projection


class _Activations:
    """Activations as floats and quantized."""

    def __init__(self, rows: int, size: int) -> None:
        self.floats = np.empty((rows, size), np.float32)
        self.quantized = QuantizedActivations(rows, size)


@dataclass(frozen=True)
class _Part:
    """One conversation's rows in a forward pass, and what they attend to."""

    rows: slice
    past: int
    keys: list[Tensor]
    values: list[Tensor]
    attention: RowAttention


@dataclass(frozen=True)
class _GatedAdapter:
    """Applies the adapter to the noise rows of a forward pass only."""

    adapter: Adapter
    rows: Indices

    def add(self, layer: int, names: str, x: Floats, product: Floats) -> None:
        """Add its delta to a result."""
        low = self.adapter.quantized[layer][names]
        kernels.add_low_rank(x, self.rows, low.a, low.a_scale, low.b, low.b_scale, low.ends, product)


class BlockQuantizedLayers:
    """The layers of a decoder.

    Args:
        layers: their weights, block-quantized.
        norm: [hidden] float32, for the states after the last layer.
    """

    def __init__(self, config: DecoderConfig, layers: Sequence[Layer], norm: Tensor) -> None:
        self._config, self._eps, self._norm = config, np.float32(config.norm_eps), norm.numpy()
        self._layers = [
            _Weights(
                attention_norm=layer.attention_norm.numpy(),
                query_key_value=_Projection.of("q k v", layer.query_key_value),
                head_norm=np.empty((0, 0), np.float32) if layer.head_norm is None else layer.head_norm.numpy(),
                output=_Projection.of("o", layer.output),
                mlp_norm=layer.mlp_norm.numpy(),
                gate_up=_Projection.of("gate up", layer.gate_up),
                down=_Projection.of("down", layer.down),
            )
            for layer in layers
        ]
        self._team = self._layers[0].down.linear.team

    def run(
        self,
        x: Tensor,
        batch: Sequence[ForwardInput],
        rotary: RotaryEmbedding,
        adapter: Adapter | None,
        interruption: Interruption = lambda: False,
    ) -> Tensor:
        """Normalized states after the last layer [rows, hidden].

        Args:
            x: [rows, hidden] float32, the embeddings of all rows; overwritten.
            batch: the conversations of the rows; their caches must have reserved room.
            rotary: the rotations of their positions.
            adapter: the adapter for noise rows.
            interruption: asked before each layer.

        Raises:
            ForwardInterrupted: `interruption` demanded it.
        """
        noise = np.flatnonzero([flag for part in batch for flag in part.noise])
        gate = _GatedAdapter(adapter, noise) if adapter is not None and len(noise) else None
        c, rows = self._config, len(x)
        state = x.numpy()
        narrow, heads, wide = (_Activations(rows, n) for n in (c.hidden, c.heads * c.head_dim, c.intermediate))
        query = np.empty((rows, c.heads, c.head_dim), np.float32)
        parts = self._parts(batch, query, heads.floats)
        cos, sin = rotary.cos[:, 0].numpy(), rotary.sin[:, 0].numpy()
        query_scale = np.ones(rows, np.float32) if rotary.query_scale is None else rotary.query_scale[:, 0, 0].numpy()
        fused = np.empty((rows, (c.heads + 2 * c.kv_heads) * c.head_dim), np.float32)
        both, product = np.empty((rows, 2 * c.intermediate), np.float32), np.zeros((rows, c.hidden), np.float32)
        into_fused, into_both = Operands(narrow.quantized, fused), Operands(narrow.quantized, both)
        heads_into_product, wide_into_product = Operands(heads.quantized, product), Operands(wide.quantized, product)
        bias = np.zeros(c.hidden, np.float32)
        for number, layer in enumerate(self._layers):
            if interruption():
                raise ForwardInterrupted
            self._add_and_normalize(state, product, bias, layer.attention_norm, narrow)
            _multiply(layer.query_key_value, into_fused, number, gate, narrow.floats)
            for part in parts:
                index, keys, values = part.rows, part.keys[number], part.values[number]
                kernels.split_heads(
                    fused[index], layer.query_key_value.bias, layer.head_norm, self._eps,
                    cos[index], sin[index], query_scale[index], part.past, query[index], keys.numpy(), values.numpy(),
                )  # fmt: skip
                part.attention.run(number)
            kernels.quantize(heads.floats, *heads.quantized.arrays)
            _multiply(layer.output, heads_into_product, number, gate, heads.floats)
            self._add_and_normalize(state, product, layer.output.bias, layer.mlp_norm, narrow)
            _multiply(layer.gate_up, into_both, number, gate, narrow.floats)
            kernels.swiglu(both, layer.gate_up.bias, wide.floats, *wide.quantized.arrays)
            _multiply(layer.down, wide_into_product, number, gate, wide.floats)
            bias = layer.down.bias
        self._add_and_normalize(state, product, bias, self._norm, narrow)
        return torch.from_numpy(narrow.floats)

    def _add_and_normalize(
        self, state: Floats, product: Floats, bias: Floats, weight: Floats, to: _Activations
    ) -> None:
        kernels.add_and_normalize(state, product, bias, weight, self._eps, to.floats, *to.quantized.arrays)

    def _parts(self, batch: Sequence[ForwardInput], query: Floats, out: Floats) -> list[_Part]:
        parts, start, layers = [], 0, len(self._layers)
        for inputs in batch:
            count, past, tensors = len(inputs.tokens), len(inputs.cache.tokens), inputs.cache.tensors()
            index, keys, values = slice(start, start + count), tensors[:layers], tensors[layers:]
            new = np.ascontiguousarray(inputs.attention_mask.numpy())
            attention = RowAttention(query[index], keys, values, past, new, out[index], self._team)
            parts.append(_Part(index, past, keys, values, attention))
            start += count
        return parts


def _multiply(projection: _Projection, operands: Operands, layer: int, gate: _GatedAdapter | None, x: Floats) -> None:
    """x Wᵀ into the operands' result, without the bias, including the adapter's delta of noise rows."""
    projection.linear.multiply(operands)
    if gate is not None:
        gate.add(layer, projection.names, x, operands.out)
