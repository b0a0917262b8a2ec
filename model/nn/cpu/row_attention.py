"""Grouped-query attention row by row, each row over exactly the keys it attends to, in order: a row's result does not
depend on the rows next to it. The worker team shares the rows and key heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import intrinsic
from torch import Tensor

from model.nn.cpu.codegen import SEGMENT
from model.nn.cpu.row_kernels import Bools, Floats, Indices, compiled, compiled_for_team, exp
from model.nn.cpu.team import Team

_CALL = ("query", "keys", "values", "new", "out", "rows", "heads", "kv_heads", "capacity", "head_dim", "past")
"""64-bit fields that describe a call: addresses, and sizes."""

_CHUNKS_PER_THREAD = 4

_ONE = np.float32(1)


def _pointer(kind: Any) -> Any:
    """A function that makes a typed pointer of an address."""

    def typed(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), generate  # type: ignore[no-untyped-call]

    return cast(Any, intrinsic(typed))


_floats, _bools, _integers = _pointer(types.float32), _pointer(types.boolean), _pointer(types.int64)


@compiled("F2 F2 P1 F2")
def _attention_weights(query: Floats, keys: Floats, seen: Indices, weights: Floats) -> None:
    """weights[g, n] = softmax over n of query[g] · keys[seen[n]] / √head_dim, for [group, head_dim] queries. Takes
    four keys at a time, so that a query is loaded once for all four."""
    group, size = query.shape
    scale, fours = _ONE / np.sqrt(np.float32(size)), len(seen) // 4 * 4
    for n in range(0, fours, 4):
        k0, k1, k2, k3 = keys[seen[n]], keys[seen[n + 1]], keys[seen[n + 2]], keys[seen[n + 3]]
        for g in range(group):
            one = query[g]
            s0, s1, s2, s3 = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
            for i in range(size):
                s0 += one[i] * k0[i]
                s1 += one[i] * k1[i]
                s2 += one[i] * k2[i]
                s3 += one[i] * k3[i]
            weights[g, n], weights[g, n + 1], weights[g, n + 2], weights[g, n + 3] = s0, s1, s2, s3
    for n in range(fours, len(seen)):
        key = keys[seen[n]]
        for g in range(group):
            score = np.float32(0)
            for i in range(size):
                score += query[g, i] * key[i]
            weights[g, n] = score
    for g in range(group):
        scores, top, total = weights[g, : len(seen)], weights[g, 0], np.float32(0)
        for n in range(len(scores)):
            top = max(top, scores[n])
        for n in range(len(scores)):
            scores[n] = exp((scores[n] - top) * scale)
            total += scores[n]
        for n in range(len(scores)):
            scores[n] /= total


@compiled("F2 P1 F2 F2")
def _weighted_sum(values: Floats, seen: Indices, weights: Floats, mixed: Floats) -> None:
    """mixed[g] = Σ weights[g, n] · values[seen[n]], [group, head_dim]. Takes four values at a time, so that a sum is
    loaded and stored once for all four."""
    group, size = mixed.shape
    fours = len(seen) // 4 * 4
    mixed[:] = 0
    for n in range(0, fours, 4):
        v0, v1, v2, v3 = values[seen[n]], values[seen[n + 1]], values[seen[n + 2]], values[seen[n + 3]]
        for g in range(group):
            w0, w1, w2, w3, out = weights[g, n], weights[g, n + 1], weights[g, n + 2], weights[g, n + 3], mixed[g]
            for i in range(size):
                out[i] += (w0 * v0[i] + w1 * v1[i]) + (w2 * v2[i] + w3 * v3[i])
    for n in range(fours, len(seen)):
        value = values[seen[n]]
        for g in range(group):
            weight = weights[g, n]
            for i in range(size):
                mixed[g, i] += weight * value[i]


@compiled_for_team
def _attend(segment: int, call: int, begin: int, end: int) -> None:
    """Attention of some (row, key head) pairs, number row · kv_heads + key head."""
    f = carray(_integers(call), 11)
    rows, heads, kv_heads, capacity, size, past = f[5], f[6], f[7], f[8], f[9], f[10]
    query, out = carray(_floats(f[0]), (rows, heads, size)), carray(_floats(f[4]), (rows, heads, size))
    keys, values = carray(_floats(f[1]), (kv_heads, capacity, size)), carray(_floats(f[2]), (kv_heads, capacity, size))
    new, group = carray(_bools(f[3]), (rows, rows)), heads // kv_heads
    seen, weights = np.arange(past + rows), np.empty((group, past + rows), np.float32)
    for item in range(begin, end):
        row, kv = item // kv_heads, item % kv_heads
        count = past
        for other in range(rows):
            if new[row, other]:
                seen[count] = past + other
                count += 1
        of_group = slice(kv * group, (kv + 1) * group)
        _attention_weights(query[row, of_group], keys[kv], seen[:count], weights)
        _weighted_sum(values[kv], seen[:count], weights, out[row, of_group])


class RowAttention:
    """The attention of one conversation's rows in a forward pass.

    Args:
        query: [rows, heads, head_dim] float32, of the layer that is run.
        keys, values: [kv_heads, capacity, head_dim] float32 of each layer.
        past: number of cached keys, which every row attends to.
        new: [rows, rows], which new rows each row attends to, including itself.
        out: [rows, heads · head_dim] float32.
        team: whose threads share the work.
    """

    def __init__(
        self,
        query: Floats,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        past: int,
        new: Bools,
        out: Floats,
        team: Team,
    ) -> None:
        rows, heads, size = query.shape
        kv_heads, capacity, _ = keys[0].shape
        self._team, self._arrays = team, (query, keys, values, new, out)  # keeps what the addresses refer to
        self._calls = np.empty((len(keys), len(_CALL)), np.int64)
        self._calls[:] = (
            query.ctypes.data, 0, 0, new.ctypes.data, out.ctypes.data, rows, heads, kv_heads, capacity, size, past,
        )  # fmt: skip
        self._calls[:, 1] = [layer.data_ptr() for layer in keys]
        self._calls[:, 2] = [layer.data_ptr() for layer in values]
        items = rows * kv_heads
        each = -(-items // (_CHUNKS_PER_THREAD * team.threads))
        self._chunks = -(-items // each)
        self._segments = np.zeros((2, len(SEGMENT)), np.int64)
        kernel: Any = _attend
        self._segments[0] = (kernel.address, 0, 0, 0, 0, items, each, 0)
        self._segments[1, -1] = np.iinfo(np.int64).max

    def run(self, layer: int) -> None:
        """Attend with the queries, keys and values of a layer."""
        call = self._calls.ctypes.data + layer * self._calls.strides[0]
        self._team.run(self._segments.ctypes.data, call, self._chunks)
