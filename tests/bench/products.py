"""What a matrix product of the language model costs here, by the kernels that torch has for it.

    python -m tests.bench.products

Each kernel multiplies 24 different weights of one shape in turn, so that they come from memory as in a model.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from model.linear import Int8Linear, quantize_rows

SHAPES = ((896, 9728), (4864, 896), (896, 1152), (896, 896))
"""Inputs and outputs of the products in a layer of the default model."""

LAYERS, REPEATS = 24, 15
GROUP = 32
"""Weights that share a scale in int4."""


def kernels(inputs: int, outputs: int) -> dict[str, Callable[[Tensor], object]]:
    """One weight, made ready for each kernel."""
    rows, scale = quantize_rows(torch.randn(outputs, inputs) * 0.02)
    ours, scale16 = Int8Linear(rows, scale), scale.bfloat16()
    nibbles = torch.randint(0, 16, (outputs, inputs), dtype=torch.int32)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(nibbles, 1)
    zeros = torch.rand(inputs // GROUP, outputs, 2).bfloat16()
    return {
        "int8 × int8 (ours)": ours,
        "int8 weights, bf16": lambda x: torch._weight_int8pack_mm(x.bfloat16(), rows, scale16),
        "int4 weights, bf16": lambda x: torch.ops.aten._weight_int4pack_mm_for_cpu(x.bfloat16(), packed, GROUP, zeros),
    }


def milliseconds(products: list[Callable[[Tensor], object]], x: Tensor) -> float:
    """Median of all layers in turn."""
    took = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        for product in products:
            product(x)
        took.append(1000 * (time.perf_counter() - began))
    return statistics.median(took[3:])


@torch.inference_mode()
def main() -> None:
    """Print the table."""
    torch.set_num_threads(2)
    table = Table("product, 24 layers, ms", "rows")
    for shape in SHAPES:
        layers = [kernels(*shape) for _ in range(LAYERS)]
        names = list(layers[0])
        if len(table.columns) == 2:
            for name in names:
                table.add_column(name)
        for rows in (1, 4, 9):
            x = torch.randn(rows, shape[0])
            times = [milliseconds([layer[name] for layer in layers], x) for name in names]
            table.add_row(f"{shape[0]} → {shape[1]}", str(rows), *(f"{ms:.1f}" for ms in times))
    Console().print(table)


if __name__ == "__main__":
    main()
