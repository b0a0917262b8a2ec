"""Speed of matrix multiplication with block-quantized weights on this CPU, the memory bandwidth, and torch's speed.

    python -m lab.benchmarks.matrix_multiplication [FORMAT ...]

Each figure multiplies different weights of one shape in turn, so that they are read from memory as in a model. The
memory bandwidth is that of all cores reading one large array.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from model.nn.cpu.block_formats import FORMATS, PackedMatrix, aligned, packed_bytes
from model.nn.cpu.linear import BlockLinear, Operands, QuantizedActivations
from model.nn.cpu.team import available_cores, shared_team

SHAPES = ((17920, 1536), (1536, 8960))
"""Outputs and inputs of the largest matrices in a layer of the 1.5B."""

ROWS = (1, 2, 4, 9, 16, 64)
BYTES = 400 << 20
"""Weights multiplied in turn: more than caches hold."""

REPEATS = 9


def median_s(run: Callable[[], object]) -> float:
    """Median seconds of a call, after a warm-up call."""
    run()
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def bandwidth() -> float:
    """GB/s that all cores read together."""
    x = torch.ones(BYTES // 4)
    return float(x.nbytes / median_s(x.sum) / 1e9)


def block_layers(name: str, outputs: int, inputs: int) -> list[BlockLinear]:
    """Layers with random weights."""
    form, draw = FORMATS[name], np.random.default_rng(0)
    size = packed_bytes(form, outputs, inputs)
    layers = []
    for _ in range(max(1, BYTES // size)):
        packed = aligned(size)
        packed[:] = draw.integers(0, 128, size, dtype=np.uint8)
        layers.append(BlockLinear([PackedMatrix(form, outputs, inputs, packed)]))
    return layers


def torch_int8(outputs: int, inputs: int, rows: int) -> float:
    """Seconds per layer of torch's own int8 multiplication (oneDNN), one scale per row."""
    packed = [
        torch.ops.onednn.qlinear_prepack(torch.randint(-127, 127, (outputs, inputs), dtype=torch.int8), None)
        for _ in range(max(1, BYTES // (outputs * inputs)))
    ]
    x = torch.randint(0, 255, (rows, inputs), dtype=torch.uint8)
    scale, zero = torch.full((outputs,), 0.01), torch.zeros(outputs, dtype=torch.int64)

    def run() -> None:
        for weight in packed:
            torch.ops.onednn.qlinear_pointwise(
                x, 1.0, 128, weight, scale, zero, None, 1.0, 0, torch.float32, "none", [], ""
            )

    return median_s(run) / len(packed)


def measure(names: Sequence[str], console: Console) -> None:
    """Print the table."""
    torch.set_num_threads(available_cores())
    team, limit = shared_team(), bandwidth()
    console.print(f"{team.threads} threads, {team.isa}; all cores read {limit:.1f} GB/s")
    table = Table("weights", "matrix", "rows", "µs", "GB/s", "of the bandwidth", "TOP/s", "torch int8, µs")
    for outputs, inputs in SHAPES:
        reference = {rows: torch_int8(outputs, inputs, rows) for rows in ROWS}
        for name in names:
            layers = block_layers(name, outputs, inputs)
            for rows in ROWS:
                x, out = QuantizedActivations(rows, inputs), np.empty((rows, outputs), np.float32)
                operands = Operands(x, out)

                def run(layers: list[BlockLinear] = layers, operands: Operands = operands) -> None:
                    for layer in layers:
                        layer.multiply(operands)

                seconds = median_s(run) / len(layers)
                speed = layers[0].nbytes / seconds / 1e9
                table.add_row(
                    name, f"{outputs} × {inputs}", str(rows), f"{seconds * 1e6:,.0f}", f"{speed:.1f}",
                    f"{speed / limit:.0%}", f"{2 * rows * outputs * inputs / seconds / 1e12:.2f}",
                    f"{reference[rows] * 1e6:,.0f}",
                )  # fmt: skip
    console.print(table)


if __name__ == "__main__":
    measure(sys.argv[1:] or ("Q4_K", "Q5_0", "Q6_K", "Q8_0"), Console(width=110))
