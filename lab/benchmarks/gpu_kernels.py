"""Compiles the GPU's kernels without a GPU, and prints what each needs of a multiprocessor.

    python -m lab.benchmarks.gpu_kernels [--model 0.5b|1.5b] [--targets 80 89 90 100] [--batches 1 64]
        [--weights stored bfloat16] [--dependent] [--table]

All kernels of a step for the shapes of a model, as it launches them with its adapter, and with a block drafter; with
the weights as its file stores them and as bfloat16; and the attention of prompts. A kernel that needs more shared
memory than a target has does not run there; registers that do not fit lie on a stack in memory, which makes it slow.
`--table` prints a table at the end, with ranges over the targets; `--dependent` compiles for programmatic dependent
launch, which targets from 9.0 on have. Exits with 1 if a kernel does not compile or does not fit.
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.pop("TRITON_INTERPRET", None)  # interpreted kernels cannot be compiled

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from lab.benchmarks.gpu_acceptance.random_models import QWEN_05B, QWEN_15B
from lab.benchmarks.gpu_acceptance.recording import (
    Launch,
    meta_adapter,
    meta_decoder,
    meta_drafter,
    recorded_prompts,
    recorded_step,
)
from lab.benchmarks.gpu_acceptance.stored_weights import with_stored_weights
from model.nn.gpu.triton_operations import dependence

_MODELS = {"0.5b": QWEN_05B, "1.5b": QWEN_15B}

_SHARED_MEMORY = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
"""KiB of shared memory that a program may use, by compute capability × 10 (CUDA C++ Programming Guide)."""

_POINTERS = {
    torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32",
    torch.int64: "*i64", torch.int32: "*i32", torch.uint8: "*u8", torch.bool: "*i1",
}  # fmt: skip

_WEIGHTS = ("stored", "bfloat16")

_OPTIONS = ("num_warps", "num_stages", "launch_pdl")

_DRAFTS = {1: 4, 64: 1}
"""Drafts in the steps that are compiled, by number of conversations."""

_RANK, _CONTEXT = 32, 4096

_PROMPTS = (1, 24, 1024)
"""Rows of the prompts whose attention is compiled: they have tiles of different sizes."""

_PRODUCTS = {"HMMA", "HGMMA", "UTCHMMA", "TCGEN05"}
"""Instructions that multiply tiles of bfloat16."""


@dataclass(frozen=True)
class Compiled:
    """What a compiled kernel needs.

    Attributes:
        registers: of a thread.
        stack: bytes of a thread's registers that did not fit.
        shared_kib: KiB of shared memory of a program.
        instructions: of its machine code (SASS).
        products: those of them that multiply tiles on tensor cores.
    """

    registers: int
    stack: int
    shared_kib: float
    instructions: int
    products: int
    seconds: float


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.benchmarks.gpu_kernels", description="Compile the GPU's kernels."
    )
    parser.add_argument("--model", choices=_MODELS, help="shapes of this model only")
    parser.add_argument("--targets", type=int, nargs="+", default=[80, 89, 90, 100], help="compute capability × 10")
    parser.add_argument("--batches", type=int, nargs="+", choices=_DRAFTS, default=[*_DRAFTS], help="conversations")
    parser.add_argument("--weights", nargs="+", choices=_WEIGHTS, default=[*_WEIGHTS])
    parser.add_argument("--dependent", action="store_true", help="compile for programmatic dependent launch")
    parser.add_argument("--table", action="store_true", help="print a Markdown table at the end")
    arguments = parser.parse_args()
    models = [arguments.model] if arguments.model else list(_MODELS)
    failed, rows = 0, dict[str, list[Compiled]]()
    print(f"triton {triton.__version__}")
    for model in models:
        for launch in _distinct(model, arguments.batches, arguments.weights, dependent=arguments.dependent):
            for target in arguments.targets:
                found = _report(model, launch, target)
                failed += found is None
                if found is not None:
                    rows.setdefault(f"{model} | {' | '.join(_description(launch))}", []).append(found)
    if arguments.table:
        print("\n".join(_table(rows)))
    return 1 if failed else 0


def _distinct(
    model: str, batches: Sequence[int], weights: Sequence[str], *, dependent: bool = False
) -> Iterator[Launch]:
    """The launches of a model's steps that differ in their kernel or its constants."""
    config, dtype, seen = _MODELS[model], torch.bfloat16, set()
    for batch, kind in itertools.product(batches, weights):
        drafts = _DRAFTS[batch]
        decoder = meta_decoder(config, dtype)
        if kind == "stored":
            decoder = with_stored_weights(decoder)
        adapter, head = meta_adapter(config, dtype, _RANK, drafts), meta_drafter(decoder)
        launches = [*recorded_step(decoder, drafts, batch, adapter=adapter, context=_CONTEXT).launches]
        launches += recorded_step(decoder, drafts, batch, head=head, context=_CONTEXT).launches
        launches += recorded_step(decoder, drafts, batch, context=_CONTEXT, choosing=True).launches
        launches = [replace(one, constants=one.constants | dependence(dependent)) for one in launches]
        launches += recorded_prompts(config, dtype, _PROMPTS)
        for launch in launches:
            key = (launch.name, str(_source(launch).constants))
            if key not in seen:
                seen.add(key)
                yield launch


def _description(launch: Launch) -> tuple[str, str, str]:
    """A kernel's name, the format of its weights and the shape of its tiles."""
    constants = launch.constants
    shape = " ".join(f"{name.lower()}={constants[name]}" for name in ("ROWS", "COLUMNS", "SPLITS") if name in constants)
    kinds = {"Q" + str(constants[bits]) for bits in ("BITS", "BITS_0", "BITS_1") if constants.get(bits)}
    return launch.name, " ".join(sorted(kinds)), shape


def _report(model: str, launch: Launch, target: int) -> Compiled | None:
    """Compile and print a line. None if the kernel does not run on the target."""
    kernel, kinds, shape = _description(launch)
    name = f"{model}  sm_{target}  {kernel:20}{shape:32}{kinds:6}"
    try:
        found = compiled(launch, target)
    except Exception as error:
        print(f"{name}  FAILED: {type(error).__name__}: {' '.join(str(error).split())[-400:]}", flush=True)
        return None
    fits = found.shared_kib <= _SHARED_MEMORY.get(target, 99)
    print(
        f"{name}  {found.registers:3} registers  {found.stack:4} B stack  {found.shared_kib:6.1f} KiB shared  "
        f"{found.instructions:5} instructions  {found.products:3} products  {found.seconds:4.1f} s"
        f"{'' if fits else '  DOES NOT FIT'}",
        flush=True,
    )
    return found if fits else None


def _table(rows: Mapping[str, Sequence[Compiled]]) -> Iterator[str]:
    """A row for each kernel, with the ranges over what it was compiled for."""
    yield "| model | kernel | bits | tiles | registers | bytes on the stack | KiB of shared memory | instructions |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, found in rows.items():
        columns = ("registers", "stack", "shared_kib", "instructions")
        ranges = []
        for column in columns:
            values = [round(getattr(one, column), 1) for one in found]
            low, high = min(values), max(values)
            ranges.append(f"{low:,}" if low == high else f"{low:,} to {high:,}")
        yield f"| {name} | {' | '.join(ranges)} |"


def compiled(launch: Launch, target: int) -> Compiled:
    """Compile a launch for a compute capability × 10."""
    began = time.perf_counter()
    options = {name: launch.constants[name] for name in _OPTIONS if name in launch.constants}
    binary = triton.compile(_source(launch), target=GPUTarget("cuda", target, 32), options=options)
    return Compiled(
        *_resources(binary.asm["cubin"], binary.metadata.shared / 1024), seconds=time.perf_counter() - began
    )


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


def _resources(binary: bytes, shared_kib: float) -> tuple[int, int, float, int, int]:
    """The first fields of `Compiled`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(binary)

        def output(tool: Any, *options: str) -> str:
            done = subprocess.run([tool.path, *options, str(path)], capture_output=True, text=True, check=True)
            return done.stdout

        usage = output(triton.knobs.nvidia.cuobjdump, "--dump-resource-usage")
        code = output(triton.knobs.nvidia.nvdisasm, "--print-code")
    registers, stack = (int(re.findall(rf"{name}:(\d+)", usage)[-1]) for name in ("REG", "STACK"))
    instructions = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][A-Z0-9_]*)", code)
    return registers, stack, shared_kib, len(instructions), sum(one in _PRODUCTS for one in instructions)


if __name__ == "__main__":
    sys.exit(main())
