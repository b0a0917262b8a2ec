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
from model.nn.cpu.linear import BlockLinear, Operands, QuantizedActivations, block_linear
from model.nn.cpu.row_attention import RowAttention
from model.nn.cpu.team import Team
from model.nn.forward_batch import ForwardInput
from model.nn.layer import Layer
from model.nn.rotary import RotaryEmbedding


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
        layers: the weights, block-quantized.
        norm: [hidden], of the normalization after the last layer.
        sizes: rows of each conversation.
        quantized_cache: whether the caches are int8.

    Attributes:
        first_inputs: what the first job adds, [rows, hidden] each. The jobs overwrite both.
        states, quantized_states: [rows, hidden], after the last layer, normalized.
        jobs: [jobs, fields of JOB].
        products: the matrix multiplications, in order.
        layer_starts: how many jobs come before each layer.
    """

    def __init__(
        self,
        config: DecoderConfig,
        layers: Sequence[Layer],
        norm: Tensor,
        sizes: Sequence[int],
        *,
        quantized_cache: bool = False,
    ) -> None:
        c, rows = config, sum(sizes)
        self._quantized_cache = quantized_cache
        query_key_value = [block_linear(layer.query_key_value) for layer in layers]
        output = [block_linear(layer.output) for layer in layers]
        gate_up = [block_linear(layer.gate_up) for layer in layers]
        down = [block_linear(layer.down) for layer in layers]
        self._config, self._layers, self._norm, self._sizes, self._team = c, layers, norm, sizes, down[0].team
        jobs = self._jobs = KernelJobs(self._team)
        self._x, self._product = np.empty((rows, c.hidden), np.float32), np.empty((rows, c.hidden), np.float32)
        self._narrow, self._heads = _Activations(rows, c.hidden), _Activations(rows, c.heads * c.head_dim)
        self._wide, self._both = _Activations(rows, c.intermediate), np.empty((rows, 2 * c.intermediate), np.float32)
        self._fused = np.empty((rows, (c.heads + 2 * c.kv_heads) * c.head_dim), np.float32)
        self._query = np.empty((rows, c.heads, c.head_dim), np.float32)
        self._cos, self._sin = np.empty((2, rows, c.head_dim), np.float32)
        self._query_scale, self._eps = np.empty(rows, np.float32), np.array([c.norm_eps], np.float32)
        self._no_bias = np.zeros(c.hidden, np.float32)
        self._cache_writers: list[tuple[Sequence[str], Table]] = []
        """Of each conversation, the fields and calls of the kernel that writes keys and values into its cache."""
        self._attention: list[RowAttention] = []
        self.first_inputs = self._x, self._product
        self.states, self.quantized_states = self._narrow.floats, self._narrow.quantized

        last_biases = [self._no_bias, *(linear.bias_row for linear in down)]
        steps = [
            self._normalize(last_biases[:-1], [layer.attention_norm for layer in layers]),
            jobs.multiply(query_key_value, self._narrow.quantized, self._fused),
            *self._attend(query_key_value),
            jobs.quantize(self._heads.floats, self._heads.quantized, len(layers)),
            jobs.multiply(output, self._heads.quantized, self._product),
            self._normalize([linear.bias_row for linear in output], [layer.mlp_norm for layer in layers]),
            jobs.multiply(gate_up, self._narrow.quantized, self._both),
            jobs.swiglu(self._both, [linear.bias_row for linear in gate_up], self._wide.floats, self._wide.quantized),
            jobs.multiply(down, self._wide.quantized, self._product),
        ]
        by_layer = np.stack(steps, axis=1)
        self.jobs: Table = np.concatenate((by_layer.reshape(-1, len(JOB)), self._normalize(last_biases[-1:], [norm])))
        self.layer_starts = range(0, len(self.jobs) - 1, len(steps))
        self.products = [
            Product(number * len(steps) + place, number, names, x.floats, out)
            for number in range(len(layers))
            for place, names, x, out in (
                (2, "q k v", self._narrow, self._fused),
                (len(steps) - 4, "o", self._heads, self._product),
                (len(steps) - 2, "gate up", self._narrow, self._both),
                (len(steps), "down", self._wide, self._product),
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

    def residual(self) -> Tensor:
        """The states [rows, hidden] that the layers add to: after the first job of layer n, those after n layers."""
        return torch.from_numpy(self._x.copy())

    def _normalize(self, biases: Sequence[Floats], weights: Sequence[Tensor]) -> Table:
        """Jobs that add the last product and its bias, normalize and quantize."""
        return self._jobs.normalize(
            self._x, self._product, biases, [weight.numpy() for weight in weights], self._eps, self._narrow.floats,
            self._narrow.quantized,
        )  # fmt: skip

    def _attend(self, linears: Sequence[BlockLinear]) -> list[Table]:
        """Jobs of every conversation that split queries, keys and values, and that attend."""
        c, layers, start, out = self._config, self._layers, 0, []
        norms = [0 if layer.head_norm is None else layer.head_norm.data_ptr() for layer in layers]
        for size in self._sizes:
            index = slice(start, start + size)
            to: dict[str, Any] = {"keys": 0, "values": 0}
            if self._quantized_cache:  # keys and values are first written as if to a cache without a past
                to["keys"], to["values"] = np.empty((2, c.kv_heads, size, c.head_dim), np.float32)
                self._jobs.kept += to.values()
            calls = call_table(
                kernels.SPLIT, len(layers), product=self._fused[index], cos=self._cos[index], sin=self._sin[index],
                bias=_addresses([linear.bias_row for linear in linears]), eps=self._eps, norm=norms,
                query_scale=self._query_scale[index], query=self._query[index], capacity=size, past=0,
                heads=c.heads, kv_heads=c.kv_heads, **to,
            )  # fmt: skip
            kernel = kernels.split_kernel(self._team, c.head_dim, layers[0].head_norm is not None)
            out.append(self._jobs.rows(kernel, calls, size, self._fused.shape[1]))
            if self._quantized_cache:
                stored = call_table(
                    kernels.STORE, len(layers), new_keys=to["keys"], new_values=to["values"], keys=0, values=0,
                    rows=size, kv_heads=c.kv_heads, capacity=0, past=0,
                )  # fmt: skip
                self._cache_writers.append((kernels.STORE, stored))
                store = kernels.store_kernel(self._team, c.head_dim)
                out.append(self._jobs.rows(store, stored, size, 2 * c.kv_heads * c.head_dim))
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


class KernelJobs:
    """Describes jobs. Each method returns one for each layer that it gets something of: [layers, fields of JOB].

    Jobs refer to their operands by address. Arrays that are passed in must outlive them, but not quantized activations
    that are multiplied.

    Args:
        team: runs them.

    Attributes:
        kept: what jobs refer to and nobody else holds.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self.kept: list[object] = []

    def multiply(self, linears: Sequence[BlockLinear], x: QuantizedActivations, out: Floats) -> Table:
        """out = x Wᵀ, without the bias."""
        operands = Operands(x, out)
        self.kept.append(operands)
        return np.array([linear.job(operands) for linear in linears])

    def quantize(self, x: Floats, to: QuantizedActivations, layers: int = 1) -> Table:
        """Quantize x [rows, size]."""
        calls = call_table(kernels.QUANTIZE, layers, x=x, **to.fields)
        return self.rows(kernels.quantize_kernel(self._team, x.shape[1]), calls, *x.shape)

    def normalize(
        self, x: Floats, product: Floats, biases: Sequence[Floats], weights: Sequence[Floats], eps: Floats,
        normal: Floats, to: QuantizedActivations,
    ) -> Table:  # fmt: skip
        """x += product + bias; normal = weight · x / √(the mean of x² + eps), also quantized."""
        calls = call_table(
            kernels.NORMALIZE, len(biases), x=x, product=product, bias=_addresses(biases),
            weight=_addresses(weights), normal=normal, eps=eps, **to.fields,
        )  # fmt: skip
        return self.rows(kernels.normalize_kernel(self._team, x.shape[1]), calls, *x.shape)

    def swiglu(self, product: Floats, biases: Sequence[Floats], inner: Floats, to: QuantizedActivations) -> Table:
        """inner = silu(first half) · second half of product + bias, also quantized."""
        (rows, size), bias = inner.shape, _addresses(biases)
        calls = call_table(kernels.SWIGLU, len(biases), product=product, inner=inner, bias=bias, **to.fields)
        parts = kernels.swiglu_parts(size)
        return self.rows(kernels.swiglu_kernel(self._team, size), calls, rows * parts, 4 * size // parts)

    def rows(self, kernel: int, calls: Table, items: int, size: int) -> Table:
        """The jobs of a row kernel's calls.

        Args:
            size: numbers in an item.
        """
        job = RowJob(kernel, items, size, self._team.threads)
        self.kept += [job.segments, calls]
        return job.table(calls)


def _addresses(arrays: Sequence[Floats]) -> list[int]:
    return [array.ctypes.data for array in arrays]
