"""A pass through the layers of an int8 decoder on the CPU: oneDNN's products, and `kernels.py` for all between them.

The same mathematics as `Decoder.run_layer`, in the form that costs a pass with few rows least: activations stay in the
levels that products read, and what belongs to the end of one product and the beginning of the next is one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from model import kernels
from model.adapter import Adapter
from model.attention import attend
from model.kernels import Bools, Bytes, Floats, Places
from model.linear import Int8Linear, Linear
from model.weights import DecoderConfig

if TYPE_CHECKING:
    from model.transformer import Layer, Rows, Turns


@dataclass(frozen=True)
class _Product:
    """A product whose scale and bias are left to the kernel behind it.

    Attributes:
        names: the projections side by side, as an adapter knows them.
    """

    names: str
    linear: Int8Linear
    bias: Floats

    @staticmethod
    def of(names: str, linear: Linear) -> _Product:
        assert isinstance(linear, Int8Linear)
        bias = np.zeros(linear.outputs, np.float32) if linear.bias is None else linear.bias.numpy()
        return _Product(names, linear, bias)


@dataclass(frozen=True)
class _Weights:
    """One layer's weights as kernels want them."""

    attention_norm: Floats
    query_key_value: _Product
    head_norm: Floats
    output: _Product
    mlp_norm: Floats
    gate_up: _Product
    down: _Product


@dataclass(frozen=True)
class _Activations:
    """Activations as levels, with each row's largest magnitude, and as the floats that they were made from."""

    floats: Floats
    levels: Bytes
    largest: Floats

    @staticmethod
    def room(rows: int, size: int) -> _Activations:
        floats, largest = np.empty((rows, size), np.float32), np.empty(rows, np.float32)
        return _Activations(floats, np.empty((rows, size), np.uint8), largest)


@dataclass(frozen=True)
class _Part:
    """One conversation's rows of a pass, and what they see."""

    rows: slice
    past: int
    keys: list[Tensor]
    values: list[Tensor]
    sees: Bools | None
    """[rows, rows], for a row at a time over what it sees; None where a last bit is no matter."""
    mask: Tensor | None
    """[rows, past + rows], for all rows in one problem; None where a single one sees everything, or with `sees`."""


@dataclass(frozen=True)
class _Gate:
    """Lets an adapter change the noise rows of a pass, and no others."""

    adapter: Adapter
    rows: Places

    def add(self, layer: int, names: str, x: _Activations, product: Floats) -> None:
        """Add its part to a product that is yet to be multiplied by the rows' scales."""
        low = self.adapter.rounded[layer][names]
        kernels.add_low_rank(x.floats, self.rows, x.largest, low.a, low.a_scale, low.b, low.b_scale, low.ends, product)


class Int8Layers:
    """The layers of a decoder.

    Args:
        layers: their weights, int8.
        norm: [hidden] float32, of the states behind the last layer.
    """

    def __init__(self, config: DecoderConfig, layers: Sequence[Layer], norm: Tensor) -> None:
        self._config, self._eps, self._norm = config, np.float32(config.norm_eps), norm.numpy()
        self._layers = [
            _Weights(
                attention_norm=layer.attention_norm.numpy(),
                query_key_value=_Product.of("q k v", layer.query_key_value),
                head_norm=np.empty((0, 0), np.float32) if layer.head_norm is None else layer.head_norm.numpy(),
                output=_Product.of("o", layer.output),
                mlp_norm=layer.mlp_norm.numpy(),
                gate_up=_Product.of("gate up", layer.gate_up),
                down=_Product.of("down", layer.down),
            )
            for layer in layers
        ]

    def run(self, x: Tensor, batch: Sequence[Rows], turns: Turns, adapter: Adapter | None) -> Tensor:
        """Normalized states behind the last layer [rows, hidden].

        Args:
            x: [rows, hidden] float32, what the rows of all conversations enter with; overwritten.
            batch: whose rows they are; room in the caches is reserved.
            turns: the angles of their positions.
            adapter: what noise rows pass through.
        """
        noise = np.flatnonzero([flag for part in batch for flag in part.noise])
        gate = _Gate(adapter, noise) if adapter is not None and len(noise) else None
        c, rows = self._config, len(x)
        state, parts = x.numpy(), self._parts(batch)
        narrow, heads, wide = (_Activations.room(rows, n) for n in (c.hidden, c.heads * c.head_dim, c.intermediate))
        query = np.empty((rows, c.heads, c.head_dim), np.float32)
        cos, sin = turns.cos[:, 0].numpy(), turns.sin[:, 0].numpy()
        grown = np.ones(rows, np.float32) if turns.query_scale is None else turns.query_scale[:, 0, 0].numpy()
        product, scale = np.zeros((rows, c.hidden), np.float32), np.zeros(rows, np.float32)
        bias = np.zeros(c.hidden, np.float32)
        for number, layer in enumerate(self._layers):
            self._normalized(state, product, scale, bias, layer.attention_norm, narrow)
            mixed = _multiplied(layer.query_key_value, narrow, number, gate)
            for part in parts:
                at, keys, values = part.rows, part.keys[number], part.values[number]
                kernels.split_heads(
                    mixed[at], narrow.largest[at], layer.query_key_value.bias, layer.head_norm, self._eps,
                    cos[at], sin[at], grown[at], part.past, query[at], keys.numpy(), values.numpy(),
                )  # fmt: skip
                _attend(part, query[at], keys, values, heads.floats[at])
            kernels.quantize(heads.floats, heads.levels, heads.largest)
            product = _multiplied(layer.output, heads, number, gate)
            self._normalized(state, product, heads.largest, layer.output.bias, layer.mlp_norm, narrow)
            both = _multiplied(layer.gate_up, narrow, number, gate)
            kernels.swiglu(both, narrow.largest, layer.gate_up.bias, wide.floats, wide.levels, wide.largest)
            product, scale, bias = _multiplied(layer.down, wide, number, gate), wide.largest, layer.down.bias
        self._normalized(state, product, scale, bias, self._norm, narrow)
        return torch.from_numpy(narrow.floats)

    def _normalized(
        self, state: Floats, product: Floats, scale: Floats, bias: Floats, weight: Floats, to: _Activations
    ) -> None:
        kernels.add_and_normalize(state, product, scale, bias, weight, self._eps, to.floats, to.levels, to.largest)

    def _parts(self, batch: Sequence[Rows]) -> list[_Part]:
        parts, start, layers = [], 0, len(self._layers)
        for rows in batch:
            count, past, stored = len(rows.tokens), len(rows.cache.tokens), rows.cache.stored()
            at, keys, values = slice(start, start + count), stored[:layers], stored[layers:]
            sees = mask = None
            if rows.exact:
                sees = np.ascontiguousarray(rows.sees.numpy())
            elif count > 1:
                mask = torch.cat((torch.ones(count, past, dtype=torch.bool), rows.sees), 1)
            parts.append(_Part(at, past, keys, values, sees, mask))
            start += count
        return parts


def _multiplied(product: _Product, x: _Activations, layer: int, gate: _Gate | None) -> Floats:
    """The product [rows, out], without the rows' scale and the bias; noise rows with the adapter's part in it."""
    y: Floats = product.linear.multiply(torch.from_numpy(x.levels)).numpy()
    if gate is not None:
        gate.add(layer, product.names, x, y)
    return y


def _attend(part: _Part, query: Floats, keys: Tensor, values: Tensor, out: Floats) -> None:
    if part.sees is not None:
        kernels.attend_rows(query, keys.numpy(), values.numpy(), part.past, part.sees, out)
    else:
        end = part.past + len(query)
        out[:] = attend(torch.from_numpy(query), keys[:, :end], values[:, :end], part.mask).numpy()
