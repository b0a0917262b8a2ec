"""Describes jobs to the worker team: which kernel runs, on which operands, and how its work is divided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.nn.cpu.codegen import SEGMENT

Table = NDArray[np.int64]

JOB = ("segments", "call", "chunks")
"""64-bit fields of a job: the addresses of its segments (SEGMENT) and of what its kernel takes, and the chunks of all
segments."""

MIN_CHUNK_NUMBERS = 8192
"""Sharing fewer numbers than this takes longer than computing them."""

_CHUNKS_PER_THREAD = 4


def call_table(fields: Sequence[str], count: int, **values: NDArray[Any] | Sequence[int] | int) -> Table:
    """Operands of `count` calls of a kernel: [count, fields] int64.

    Args:
        fields: what the kernel takes.
        values: each field's. An array stands for its address, which must stay valid; a sequence has one number for
            each call.
    """
    table = np.empty((count, len(fields)), np.int64)
    for n, field in enumerate(fields):
        value = values[field]
        table[:, n] = value.ctypes.data if isinstance(value, np.ndarray) else value
    return table


def addresses(table: Table) -> NDArray[np.int64]:
    """The address of each row of a table."""
    start, step = table.ctypes.data, table.strides[0]
    return np.arange(start, start + step * len(table), step)


class RowJob:
    """How the rows of a kernel are divided among the threads.

    Args:
        kernel: its address; it takes (segment, call, first row, last row + 1).
        rows: how many there are.
        size: numbers in a row.
        threads: of the team.

    Attributes:
        segments, chunks: as `Team.run` takes them.
    """

    def __init__(self, kernel: int, rows: int, size: int, threads: int) -> None:
        most = min(rows, _CHUNKS_PER_THREAD * threads, rows * size // MIN_CHUNK_NUMBERS)
        each = -(-rows // max(1, most))
        self.segments, self.chunks = np.zeros((2, len(SEGMENT)), np.int64), -(-rows // each)
        self.segments[0] = (kernel, 0, 0, 0, 0, rows, each, 0)
        self.segments[1, -1] = np.iinfo(np.int64).max

    def table(self, calls: Table) -> Table:
        """A job for each of these calls: [calls, fields of JOB]."""
        return np.array([(self.segments.ctypes.data, call, self.chunks) for call in addresses(calls)])
