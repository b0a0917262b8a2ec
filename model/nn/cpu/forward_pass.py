"""A forward pass through the layers of a decoder as a list of jobs, which the worker team runs without the interpreter.

It computes the same as `Decoder.run_layer`, in the form that is cheapest for few rows: the end of one multiplication is
fused with the quantization for the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.checkpoint.checkpoint import DecoderConfig
from model.nn.cpu import row_codegen as kernels
from model.nn.cpu.block_formats import Floats
from model.nn.cpu.jobs import JOB, RowJob, Table, call_table
from model.nn.cpu.linear import BlockLinear, Operands, QuantizedActivations
from model.nn.cpu.row_attention import RowAttention
from model.nn.cpu.team import Team
from model.nn.forward_batch import ForwardInput
from model.nn.layer import Layer
from model.nn.linear import Linear
from model.nn.rotary import RotaryEmbedding


@dataclass(frozen=True)
class Projection:
    """A matrix multiplication whose bias is added by the kernel that follows it.

    Attributes:
        names: the fused projections, as the adapter names them.
    """

    names: str
    linear: BlockLinear
    bias: Floats

    @staticmethod
    def of(names: str, linear: Linear) -> Projection:
        """A layer's projections."""
        assert isinstance(linear, BlockLinear)
        bias = np.zeros(linear.out_features, np.float32) if linear.bias is None else linear.bias.numpy()
        return Projection(names, linear, bias)


@dataclass(frozen=True)
class LayerWeights:
    """One layer's weights in the layout of the kernels."""

    attention_norm: Floats
    query_key_value: Projection
    head_norm: Floats
    """Empty if heads are not normalized."""
    output: Projection
    mlp_norm: Floats
    gate_up: Projection
    down: Projection

    @staticmethod
    def of(layer: Layer) -> LayerWeights:
        """The weights of a block-quantized layer."""
        return LayerWeights(
            attention_norm=layer.attention_norm.numpy(),
            query_key_value=Projection.of("q k v", layer.query_key_value),
            head_norm=np.empty((0, 0), np.float32) if layer.head_norm is None else layer.head_norm.numpy(),
            output=Projection.of("o", layer.output),
            mlp_norm=layer.mlp_norm.numpy(),
            gate_up=Projection.of("gate up", layer.gate_up),
            down=Projection.of("down", layer.down),
        )


@dataclass(frozen=True)
class Product:
    """A multiplication's place in a forward pass.

    Attributes:
        end: how many jobs have run when its result is there.
        layer, names: which projections, as the adapter names them.
        x: [rows, inputs].
        out: [rows, outputs], the result.
    """

    end: int
    layer: int
    names: str
    x: Floats
    out: Floats


class _Activations:
    """Activations as floats and quantized."""

    def __init__(self, rows: int, size: int) -> None:
        self.floats = np.empty((rows, size), np.float32)
        self.quantized = QuantizedActivations(rows, size)


class ForwardPass:
    """The jobs of a forward pass for certain numbers of rows, and their operands.

    Args:
        layers: the weights.
        norm: [hidden], of the normalization after the last layer.
        sizes: rows of each conversation.
        team: runs the jobs.
        quantized_cache: whether the caches are int8.

    Attributes:
        states: [rows, hidden], after the last layer, normalized.
        jobs: [jobs, fields of JOB].
        products: the matrix multiplications, in order.
        layer_starts: how many jobs come before each layer.
    """

    def __init__(
        self,
        config: DecoderConfig,
        layers: Sequence[LayerWeights],
        norm: Floats,
        sizes: Sequence[int],
        team: Team,
        *,
        quantized_cache: bool = False,
    ) -> None:
        c, rows = config, sum(sizes)
        self._quantized_cache = quantized_cache
        self._config, self._layers, self._sizes, self._team = c, layers, sizes, team
        self._x, self._product = np.empty((rows, c.hidden), np.float32), np.empty((rows, c.hidden), np.float32)
        self._narrow, self._heads = _Activations(rows, c.hidden), _Activations(rows, c.heads * c.head_dim)
        self._wide, self._both = _Activations(rows, c.intermediate), np.empty((rows, 2 * c.intermediate), np.float32)
        self._fused = np.empty((rows, (c.heads + 2 * c.kv_heads) * c.head_dim), np.float32)
        self._query = np.empty((rows, c.heads, c.head_dim), np.float32)
        self._cos, self._sin = np.empty((2, rows, c.head_dim), np.float32)
        self._query_scale, self._eps = np.empty(rows, np.float32), np.array([c.norm_eps], np.float32)
        self._no_bias = np.zeros(c.hidden, np.float32)
        self._operands: list[object] = []
        """What jobs refer to by address and no other attribute holds."""
        self._cache_writers: list[tuple[Sequence[str], Table]] = []
        """Of each conversation, the fields and calls of the kernel that writes keys and values into its cache."""
        self._attention: list[RowAttention] = []
        self.states = self._narrow.floats

        last_biases = [self._no_bias, *(layer.down.bias for layer in layers)]
        before = self._normalize(last_biases[:-1], [layer.attention_norm for layer in layers])
        steps = [
            before,
            self._multiply([layer.query_key_value for layer in layers], self._narrow, self._fused),
            *self._attend(),
            self._quantize(),
            self._multiply([layer.output for layer in layers], self._heads, self._product),
            self._normalize([layer.output.bias for layer in layers], [layer.mlp_norm for layer in layers]),
            self._multiply([layer.gate_up for layer in layers], self._narrow, self._both),
            self._swiglu(),
            self._multiply([layer.down for layer in layers], self._wide, self._product),
        ]
        by_layer = np.stack(steps, axis=1)
        self.jobs: Table = np.concatenate((by_layer.reshape(-1, len(JOB)), self._normalize(last_biases[-1:], [norm])))
        self.layer_starts = range(0, len(self.jobs) - 1, len(steps))
        self.products = [
            Product(number * len(steps) + place, number, projection.names, x.floats, out)
            for number, layer in enumerate(layers)
            for place, projection, x, out in (
                (2, layer.query_key_value, self._narrow, self._fused),
                (len(steps) - 4, layer.output, self._heads, self._product),
                (len(steps) - 2, layer.gate_up, self._narrow, self._both),
                (len(steps), layer.down, self._wide, self._product),
            )
        ]

    def begin(self, x: Floats, batch: Sequence[ForwardInput], rotary: RotaryEmbedding) -> None:
        """Set the embeddings of all rows [rows, hidden], the rotations of their positions and what they attend to.

        Args:
            batch: the conversations; their caches must have reserved room.
        """
        self._x[:], self._product[:] = x, 0
        self._cos[:], self._sin[:] = rotary.cos[:, 0].numpy(), rotary.sin[:, 0].numpy()
        self._query_scale[:] = 1 if rotary.query_scale is None else rotary.query_scale[:, 0, 0].numpy()
        layers = len(self._layers)
        for inputs, (fields, calls), attention in zip(batch, self._cache_writers, self._attention, strict=True):
            tensors = inputs.cache.tensors()
            past, new = len(inputs.cache.tokens), inputs.attention_mask.numpy()
            attention.attend_to(tensors[:layers], tensors[layers:], past, new)
            for field in ("keys", "values", "capacity", "past"):
                calls[:, fields.index(field)] = attention.column(field)

    @property
    def first_inputs(self) -> tuple[Floats, Floats]:
        """What the first job adds, [rows, hidden] each. The jobs overwrite both."""
        return self._x, self._product

    @property
    def quantized_states(self) -> QuantizedActivations:
        """`states` as a multiplication takes them."""
        return self._narrow.quantized

    def residual(self) -> Tensor:
        """The states [rows, hidden] that the layers add to: after the first job of layer n, those after n layers."""
        return torch.from_numpy(self._x.copy())

    def _normalize(self, biases: Sequence[Floats], weights: Sequence[Floats]) -> Table:
        """Jobs that add the last product and its bias, normalize and quantize."""
        calls = call_table(
            kernels.NORMALIZE, len(biases), x=self._x, product=self._product, bias=_addresses(biases),
            weight=_addresses(weights), normal=self._narrow.floats, eps=self._eps,
            **self._narrow.quantized.fields,
        )  # fmt: skip
        kernel = kernels.normalize_kernel(self._team, self._config.hidden)
        return self._row_jobs(kernel, calls, len(self._x), self._config.hidden)

    def _multiply(self, projections: Sequence[Projection], x: _Activations, out: Floats) -> Table:
        operands = Operands(x.quantized, out)
        self._operands.append(operands)
        return np.array([projection.linear.job(operands) for projection in projections])

    def _attend(self) -> list[Table]:
        """Jobs of every conversation that split queries, keys and values, and that attend."""
        c, layers, start, out = self._config, self._layers, 0, []
        for size in self._sizes:
            index = slice(start, start + size)
            to: dict[str, Any] = {"keys": 0, "values": 0}
            if self._quantized_cache:  # keys and values are first written as if to a cache without a past
                to["keys"], to["values"] = np.empty((2, c.kv_heads, size, c.head_dim), np.float32)
                self._operands += to.values()
            calls = call_table(
                kernels.SPLIT, len(layers), product=self._fused[index], cos=self._cos[index], sin=self._sin[index],
                bias=_addresses([layer.query_key_value.bias for layer in layers]), eps=self._eps,
                norm=_addresses([layer.head_norm for layer in layers]),
                query_scale=self._query_scale[index], query=self._query[index], capacity=size, past=0,
                heads=c.heads, kv_heads=c.kv_heads, **to,
            )  # fmt: skip
            kernel = kernels.split_kernel(self._team, c.head_dim, layers[0].head_norm.size > 0)
            out.append(self._row_jobs(kernel, calls, size, self._fused.shape[1]))
            if self._quantized_cache:
                stored = call_table(
                    kernels.STORE, len(layers), new_keys=to["keys"], new_values=to["values"], keys=0, values=0,
                    rows=size, kv_heads=c.kv_heads, capacity=0, past=0,
                )  # fmt: skip
                self._cache_writers.append((kernels.STORE, stored))
                store = kernels.store_kernel(self._team, c.head_dim)
                out.append(self._row_jobs(store, stored, size, 2 * c.kv_heads * c.head_dim))
            else:
                self._cache_writers.append((kernels.SPLIT, calls))
            attention = RowAttention(
                self._query[index], self._heads.floats[index], len(layers), c.kv_heads, self._team,
                quantized=self._quantized_cache,
            )  # fmt: skip
            self._attention.append(attention)
            out.append(attention.jobs)
            start += size
        return out

    def _quantize(self) -> Table:
        rows, size = self._heads.floats.shape
        calls = call_table(kernels.QUANTIZE, len(self._layers), x=self._heads.floats, **self._heads.quantized.fields)
        return self._row_jobs(kernels.quantize_kernel(self._team, size), calls, rows, size)

    def _swiglu(self) -> Table:
        rows, size = self._wide.floats.shape
        calls = call_table(
            kernels.SWIGLU, len(self._layers), product=self._both, inner=self._wide.floats,
            bias=_addresses([layer.gate_up.bias for layer in self._layers]), **self._wide.quantized.fields,
        )  # fmt: skip
        parts = kernels.swiglu_parts(size)
        return self._row_jobs(kernels.swiglu_kernel(self._team, size), calls, rows * parts, 4 * size // parts)

    def _row_jobs(self, kernel: int, calls: Table, items: int, size: int) -> Table:
        """A job for each call of a row kernel.

        Args:
            size: numbers in an item.
        """
        job = RowJob(kernel, items, size, self._team.threads)
        self._operands += [job.segments, calls]
        return job.table(calls)


def _addresses(arrays: Sequence[Floats]) -> list[int]:
    return [array.ctypes.data for array in arrays]
