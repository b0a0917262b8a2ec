"""Random weights in GGUF's block formats, activations quantized as the kernels expect them, and the instruction sets
to test them with."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from model.nn.cpu.block_formats import BlockFormat, Bytes
from model.nn.cpu.linear import QuantizedActivations
from model.nn.cpu.target import Isa
from model.nn.cpu.team import detect_isa

_SCALES = {"Q6_K": (208,), "Q4_0": (0,), "Q5_0": (0,), "Q8_0": (0,)}
"""Where a block's float16 numbers are; the other formats have two, at 0 and 2."""


def random_blocks(form: BlockFormat, outputs: int, inputs: int, seed: int) -> Bytes:
    """[outputs, bytes of a row] uint8: random bits, with scales of a plausible size."""
    draw = np.random.default_rng(seed)
    blocks = draw.integers(0, 256, (outputs, inputs // form.stored_block, form.stored_bytes), dtype=np.uint8)
    for at in _SCALES.get(form.name, (0, 2)):
        scale = draw.uniform(0.001, 0.02, (*blocks.shape[:2], 1)).astype(np.float16)
        blocks[:, :, at : at + 2] = scale.view(np.uint8)
    return blocks.reshape(outputs, -1)


def random_activations(rows: int, inputs: int, seed: int) -> tuple[QuantizedActivations, NDArray[np.float64]]:
    """Quantized activations, and the numbers that they stand for [rows, inputs] float64."""
    draw = np.random.default_rng(seed)
    quantized = QuantizedActivations(rows, inputs)
    blocks = len(quantized.levels)
    levels = np.zeros((rows, 32 * blocks), np.int8)
    levels[:, :inputs] = draw.integers(-127, 128, (rows, inputs), dtype=np.int8)
    quantized.levels[:] = levels.reshape(rows, blocks, 32).transpose(1, 0, 2)
    quantized.scale[:] = draw.uniform(0.005, 0.05, quantized.scale.shape)
    set_sums(quantized)
    return quantized, dequantized(quantized)[:, :inputs]


def dequantized(x: QuantizedActivations) -> NDArray[np.float64]:
    """The numbers that activations stand for: [rows, 32 · blocks] float64."""
    return (x.levels * x.scale[..., None].astype(np.float64)).transpose(1, 0, 2).reshape(x.scale.shape[1], -1)


def set_sums(x: QuantizedActivations) -> None:
    """Fill in the sums that belong to the levels and scales."""
    halves = x.levels.reshape(*x.scale.shape, 2, 16).sum(-1, dtype=np.int32)
    x.sums[:] = -np.concatenate((halves.sum(-1, keepdims=True), halves), axis=-1)
    x.minimum[:] = x.scale * x.sums[..., 0]


def supported() -> list[Isa]:
    """The instruction sets that this machine can run."""
    features = llvm.get_host_cpu_features()
    needed: dict[Isa, list[str]] = {
        "avx512vnni": ["avx512vnni"], "avxvnni": ["avxvnni"], "avx2": ["avx2", "fma"], "sdot": ["dotprod"],
        "portable": [],
    }  # fmt: skip
    best: list[Isa] = ["amx"] if detect_isa() == "amx" else []
    return best + [isa for isa, names in needed.items() if all(features.get(name) for name in names)]
