"""Compiles the GPU's kernels without a GPU, and prints what each needs of a multiprocessor.

    python -m lab.benchmarks.gpu_kernels [--model 0.5b|1.5b] [--targets 80 89 90 100] [--batches 1 64]
        [--weights stored bfloat16]

For the shapes of a model with its adapter, as a step launches them, with the weights as its file stores them and as
bfloat16. A kernel that needs more shared memory than a
target has does not run there; registers that do not fit lie on a stack in memory, which makes it slow. Exits with 1 if
a kernel does not compile or does not fit.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.pop("TRITON_INTERPRET", None)  # interpreted kernels cannot be compiled

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from lab.benchmarks.gpu_acceptance.random_models import QWEN_05B, QWEN_15B
from lab.benchmarks.gpu_acceptance.recording import Launch, recorded_choice, recorded_pass

_MODELS = {"0.5b": QWEN_05B, "1.5b": QWEN_15B}

_SHARED_MEMORY = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
"""KiB of shared memory that a program may use, by compute capability × 10 (CUDA C++ Programming Guide)."""

_POINTERS = {
    torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32",
    torch.int64: "*i64", torch.int32: "*i32", torch.uint8: "*u8",
}  # fmt: skip

_WEIGHTS = ("stored", "bfloat16")

_OPTIONS = ("num_warps", "num_stages")

_STEPS = {1: (4, 7), 64: (1, 0)}
"""Drafts and copied tokens of the steps that are compiled, by number of conversations."""

_RANK, _CAPACITY = 32, 4224


@dataclass(frozen=True)
class Compiled:
    """What a compiled kernel needs.

    Attributes:
        registers: of a thread.
        stack: bytes of a thread's registers that did not fit.
        shared_kib: KiB of shared memory of a program.
    """

    registers: int
    stack: int
    shared_kib: float
    seconds: float


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.benchmarks.gpu_kernels", description="Compile the GPU's kernels."
    )
    parser.add_argument("--model", choices=_MODELS, help="shapes of this model only")
    parser.add_argument("--targets", type=int, nargs="+", default=[80, 89, 90, 100], help="compute capability × 10")
    parser.add_argument("--batches", type=int, nargs="+", choices=_STEPS, default=[*_STEPS], help="conversations")
    parser.add_argument("--weights", nargs="+", choices=_WEIGHTS, default=[*_WEIGHTS])
    arguments = parser.parse_args()
    models = [arguments.model] if arguments.model else list(_MODELS)
    failed = 0
    print(f"triton {triton.__version__}")
    for model in models:
        for launch in _distinct(model, arguments.batches, arguments.weights):
            for target in arguments.targets:
                failed += not _report(model, launch, target)
    return 1 if failed else 0


def _distinct(model: str, batches: Sequence[int], weights: Sequence[str]) -> Iterator[Launch]:
    """The launches of a model's steps that differ in their kernel or its constants."""
    seen = set()
    for batch, kind in itertools.product(batches, weights):
        drafts, copies = _STEPS[batch]
        stored = kind == "stored"
        launches = recorded_pass(_MODELS[model], torch.bfloat16, drafts, copies, _RANK, _CAPACITY, batch, stored=stored)
        for launch in (*launches, *recorded_choice(_MODELS[model], torch.bfloat16, drafts, batch, stored=stored)):
            key = (launch.name, str(_source(launch).constants))
            if key not in seen:
                seen.add(key)
                yield launch


def _report(model: str, launch: Launch, target: int) -> bool:
    """Compile and print a line. Returns whether the kernel runs on the target."""
    constants = launch.constants
    shape = " ".join(f"{name.lower()}={constants[name]}" for name in ("ROWS", "COLUMNS", "SPLITS") if name in constants)
    kinds = {"Q" + str(constants[bits]) for bits in ("BITS", "BITS_0", "BITS_1") if constants.get(bits)}
    name = f"{model}  sm_{target}  {launch.name:20}{shape:32}{' '.join(sorted(kinds)):6}"
    try:
        found = compiled(launch, target)
    except Exception as error:
        print(f"{name}  FAILED: {type(error).__name__}: {' '.join(str(error).split())[-400:]}")
        return False
    fits = found.shared_kib <= _SHARED_MEMORY.get(target, 99)
    print(
        f"{name}  {found.registers:3} registers  {found.stack:4} B stack  {found.shared_kib:6.1f} KiB shared  "
        f"{found.seconds:4.1f} s{'' if fits else '  DOES NOT FIT'}"
    )
    return fits


def compiled(launch: Launch, target: int) -> Compiled:
    """Compile a launch for a compute capability × 10."""
    began = time.perf_counter()
    options = {name: launch.constants[name] for name in _OPTIONS if name in launch.constants}
    binary = triton.compile(_source(launch), target=GPUTarget("cuda", target, 32), options=options)
    registers, stack = _resources(binary.asm["cubin"])
    return Compiled(registers, stack, binary.metadata.shared / 1024, time.perf_counter() - began)


def _source(launch: Launch) -> ASTSource:
    """The kernel with the types that a launch would give its arguments."""
    names = launch.kernel.arg_names
    signature: dict[str, str] = {}
    constants: dict[tuple[int], Any] = {}
    attributes: dict[tuple[int], list[list[Any]]] = {}
    values = dict(zip(names, launch.arguments, strict=False))
    values |= {name: value for name, value in launch.constants.items() if name not in _OPTIONS}
    for index, name in enumerate(names):
        value, place = values[name], (index,)
        aligned, specialized = False, not launch.kernel.params[index].do_not_specialize
        if isinstance(value, torch.Tensor):
            signature[name], aligned = _POINTERS[value.dtype], True
        elif name in launch.constants or value is None or (specialized and isinstance(value, int) and value == 1):
            signature[name], constants[place] = "constexpr", value
        elif isinstance(value, float):
            signature[name] = "fp32"
        else:
            signature[name], aligned = "i32", specialized and value % 16 == 0
        if aligned:
            attributes[place] = [["tt.divisibility", 16]]
    return ASTSource(launch.kernel, signature, constants, attributes)


def _resources(binary: bytes) -> tuple[int, int]:
    """Registers of a thread, and bytes of its stack, from a compiled kernel."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(binary)
        tool = triton.knobs.nvidia.cuobjdump.path
        text = subprocess.run([tool, "--dump-resource-usage", path], capture_output=True, text=True, check=True).stdout
    return tuple(int(re.findall(rf"{name}:(\d+)", text)[-1]) for name in ("REG", "STACK"))  # type: ignore[return-value]


if __name__ == "__main__":
    sys.exit(main())
