"""How fast this machine multiplies with quantized weights: measured once, then kept in the cache folder.

Reading weights decides how long a token takes, arithmetic how long it takes to recognize speech, read a prompt and
synthesize the response.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from model.nn.cpu.block_formats import FORMATS, packed_bytes
from model.nn.cpu.linear import BlockLinear, Operands, PackedMatrix, QuantizedActivations
from model.nn.cpu.team import aligned, available_cores, shared_team
from server.processor import cpu_name
from server.serving.measurements import measured_once

_VERSION = 3
"""Of the measurement."""

_FORMAT, _SHAPE = "Q4_K", (8960, 1536)
"""Quantization, outputs and inputs of the matrices that are multiplied: those of a small language model."""

_WEIGHT_BYTES = 160 << 20
"""Of all matrices together; far more than caches hold."""

_MANY_ROWS = 32
_MEASURING_S = 0.6
"""Of each figure."""

_GPU_BYTES = 1 << 30


@dataclass(frozen=True)
class MachineSpeed:
    """What a language model can expect of a machine.

    Attributes:
        machine: the processor and its cores, or the GPU.
        gigabytes_per_second: quantized weights that a forward pass of one row reads.
        gigaflops: arithmetic of a forward pass of many rows, 10⁹ operations per second.
        cpu_gigaflops: the same on the CPU, where recognition and synthesis run even if there is a GPU.
        memory_bytes: memory that models may take: the machine's or, with a GPU, the GPU's.
        gpu: whether the language model runs on a GPU.
    """

    machine: str
    gigabytes_per_second: float
    gigaflops: float
    cpu_gigaflops: float
    memory_bytes: int
    gpu: bool = False


def machine_speed(device: str = "auto", *, again: bool = False) -> MachineSpeed:
    """The speed of this machine, measured (for about a second) if that has not been done yet.

    Args:
        device: `auto` (a GPU when there is one), `cpu`, `cuda` or `cuda:N`.
        again: measure even if there is a measurement.
    """
    gpu = device != "cpu" and torch.cuda.is_available()
    name = _gpu_name(device) if gpu else _cpu_name()
    return measured_once(
        "machine.json",
        _VERSION,
        MachineSpeed,
        name,
        lambda: _measure_gpu(name, device) if gpu else _measure_cpu(name),
        again=again,
    )


def _measure_cpu(name: str) -> MachineSpeed:
    (outputs, inputs), form = _SHAPE, FORMATS[_FORMAT]
    size = packed_bytes(form, outputs, inputs)
    layers = []
    for _ in range(_WEIGHT_BYTES // size):
        packed = aligned(size)
        packed[:] = 1
        layers.append(BlockLinear([PackedMatrix(form, outputs, inputs, packed)]))
    seconds = {}
    for rows in (1, _MANY_ROWS):
        operands = Operands(QuantizedActivations(rows, inputs), np.empty((rows, outputs), np.float32))

        def run(operands: Operands = operands) -> None:
            for layer in layers:
                layer.multiply(operands)

        seconds[rows] = _typical_s(run)
    arithmetic = 2 * _MANY_ROWS * outputs * inputs * len(layers)
    gigaflops = round(arithmetic / seconds[_MANY_ROWS] / 1e9, 1)
    return MachineSpeed(name, round(size * len(layers) / seconds[1] / 1e9, 2), gigaflops, gigaflops, _physical_memory())


def _measure_gpu(name: str, device: str) -> MachineSpeed:
    target = torch.device("cuda" if device == "auto" else device)
    block = torch.ones(_GPU_BYTES // 2, dtype=torch.bfloat16, device=target)
    square = torch.ones((4096, 4096), dtype=torch.bfloat16, device=target)

    def timed(work: Callable[[], object]) -> float:
        def run() -> None:
            work()
            torch.cuda.synchronize(target)

        return _typical_s(run)

    read, multiply = timed(block.sum), timed(lambda: square @ square)
    _, total = torch.cuda.mem_get_info(target)
    return MachineSpeed(
        name,
        round(_GPU_BYTES / read / 1e9, 2),
        round(2 * 4096**3 / multiply / 1e9, 1),
        _measure_cpu(_cpu_name()).cpu_gigaflops,
        total,
        gpu=True,
    )


def _typical_s(run: Callable[[], object]) -> float:
    """Seconds of a call: the quickest quarter of many, so that a busy moment is not taken for a slow machine."""
    run()
    times: list[float] = []
    until = time.perf_counter() + _MEASURING_S
    while len(times) < 4 or time.perf_counter() < until:
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return statistics.quantiles(times, n=4)[0]


def _gpu_name(device: str) -> str:
    return torch.cuda.get_device_name(torch.device("cuda" if device == "auto" else device))


def _cpu_name() -> str:
    """The processor and what this process may use of it, so that a container with fewer cores is measured again."""
    return f"{cpu_name()}, {available_cores()} cores, {shared_team().isa}"


def _physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
