"""Grouped-query attention of one conversation's rows, shared by the worker team (`attention_kernel.py`). A row's result
does not depend on the rows next to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from torch import Tensor

from model.nn.cpu.attention_kernel import CALL, kernel_name, kernel_text
from model.nn.cpu.codegen import SEGMENT
from model.nn.cpu.row_kernels import Bools, Floats
from model.nn.cpu.target import TARGETS
from model.nn.cpu.team import Team

_CHUNKS_PER_THREAD = 4


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
        reach = past + np.maximum.accumulate(rows - new[:, ::-1].argmax(1))
        self._team, self._arrays = team, (query, keys, values, new, reach, out)  # keeps what the addresses refer to
        self._calls = np.empty((len(keys), len(CALL)), np.int64)
        self._calls[:] = (
            query.ctypes.data, 0, 0, new.ctypes.data, reach.ctypes.data, out.ctypes.data,
            rows, heads, kv_heads, capacity, past,
        )  # fmt: skip
        self._calls[:, 1] = [layer.data_ptr() for layer in keys]
        self._calls[:, 2] = [layer.data_ptr() for layer in values]
        lanes, queries = TARGETS[team.isa].lanes, rows * (heads // kv_heads)
        vectors = 1 if queries <= lanes else 2
        items = kv_heads * -(-queries // (vectors * lanes))
        each = -(-items // (_CHUNKS_PER_THREAD * team.threads))
        self._chunks = -(-items // each)
        self._segments = np.zeros((2, len(SEGMENT)), np.int64)
        kernel = team.kernel(kernel_name(size, vectors), partial(kernel_text, size, vectors))
        self._segments[0] = (kernel, 0, 0, 0, 0, items, each, 0)
        self._segments[1, -1] = np.iinfo(np.int64).max

    def run(self, layer: int) -> None:
        """Attend with the queries, keys and values of a layer."""
        call = self._calls.ctypes.data + layer * self._calls.strides[0]
        self._team.run(self._segments.ctypes.data, call, self._chunks)
