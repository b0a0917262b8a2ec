"""Grouped-query attention of one conversation's rows, shared by the worker team (`attention_kernel.py`). A row's result
does not depend on the rows next to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from model.nn.cpu.attention_kernel import CALL, kernel_name, kernel_text
from model.nn.cpu.block_formats import Bools, Floats
from model.nn.cpu.jobs import MIN_CHUNK_NUMBERS, RowJob, call_table
from model.nn.cpu.target import TARGETS
from model.nn.cpu.team import Team


class RowAttention:
    """The attention of one conversation's rows in a forward pass.

    Args:
        query: [rows, heads, head_dim] float32, of the layer that is run.
        out: [rows, heads · head_dim] float32.
        layers: of the model.
        kv_heads: heads of its keys and values.
        team: whose threads share the work.
        quantized: whether the cache is int8.

    Attributes:
        jobs: [layers, fields of JOB].
    """

    def __init__(
        self, query: Floats, out: Floats, layers: int, kv_heads: int, team: Team, *, quantized: bool = False
    ) -> None:
        rows, heads, size = query.shape
        self._arrays = query, out  # keeps what the addresses refer to
        self._new, self._reach = np.empty((rows, rows), np.bool_), np.empty(rows, np.int64)
        self._calls = call_table(
            CALL, layers, query=query, keys=0, values=0, new=self._new, reach=self._reach, out=out,
            rows=rows, heads=heads, kv_heads=kv_heads, capacity=0, past=0,
        )  # fmt: skip
        lanes, queries = TARGETS[team.isa].lanes, rows * (heads // kv_heads)
        vectors = 1 if queries <= lanes else 2
        items = kv_heads * -(-queries // (vectors * lanes))
        name = kernel_name(size, vectors, quantized=quantized)
        kernel = team.kernel(name, partial(kernel_text, size, vectors, quantized=quantized))
        self._job = RowJob(kernel, items, MIN_CHUNK_NUMBERS, team.threads)  # even a single item is worth sharing
        self.jobs = self._job.table(self._calls)

    def attend_to(self, keys: Sequence[Tensor], values: Sequence[Tensor], past: int, new: Bools) -> None:
        """State what the rows attend to.

        Args:
            keys, values: [kv_heads, capacity, head_dim] float32 of each layer, or an int8 cache's records.
            past: number of cached keys, which every row attends to.
            new: [rows, rows], which new rows each row attends to, including itself.
        """
        self._new[:] = new
        self._reach[:] = past + np.maximum.accumulate(len(new) - new[:, ::-1].argmax(1))
        for field, numbers in (
            ("keys", [layer.data_ptr() for layer in keys]), ("values", [layer.data_ptr() for layer in values]),
            ("capacity", keys[0].shape[1]), ("past", past),
        ):  # fmt: skip
            self._calls[:, CALL.index(field)] = numbers

    def column(self, field: str) -> NDArray[np.int64]:
        """A field of every layer's call."""
        return self._calls[:, CALL.index(field)]
