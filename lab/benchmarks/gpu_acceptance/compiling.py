"""The first stage: compiles the kernels of all steps on all cores into Triton's cache, where the next stages find them.
A kernel takes seconds to compile, one after the other minutes."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import torch

from lab.benchmarks.gpu_acceptance.answers import holds
from lab.benchmarks.gpu_acceptance.context import Context, NotPossibleHere
from lab.benchmarks.gpu_acceptance.random_models import QWEN_05B, QWEN_15B, TINY
from model.checkpoint.checkpoint import DecoderConfig

_CPU_TARGET = 90
"""Compute capability × 10 for which kernels are compiled without a GPU."""

_CPU_KERNELS = 3
"""So many are compiled then, to see that it works."""

_GPU_MEMORY_GIB = 1
"""What a process that compiles takes of the GPU's memory: half of it is CUDA's context."""


@dataclass(frozen=True)
class Step:
    """A step whose kernels are compiled: of a model with one layer, as all layers have the same kernels."""

    config: DecoderConfig
    dtype: torch.dtype
    drafts: int
    copies: int
    batch: int


def run(context: Context) -> None:
    """Run the stage."""
    context.check("kernels are compiled on all cores", lambda: compile_all(context))


def steps(on_gpu: bool) -> list[Step]:
    """The steps that later stages run."""
    if not on_gpu:
        return [Step(replace(TINY, layers=1), torch.bfloat16, 2, 2, 1)]
    shapes = [(config, torch.bfloat16) for config in (QWEN_05B, QWEN_15B)] + [(TINY, torch.float32)]
    one = [(drafts, 7, 1) for drafts in range(5)]
    many = [(drafts, 7 if batch <= 8 else 0, batch) for batch in (2, 4, 8, 16, 32, 64) for drafts in range(4)]
    return [Step(replace(config, layers=1), dtype, *rest) for config, dtype in shapes for rest in (*one, *many)]


def compile_all(context: Context) -> Mapping[str, Any]:
    """Each process compiles its share of the kernels."""
    try:
        import triton  # noqa: F401
    except ImportError as error:
        raise NotPossibleHere(f"needs Triton ({error})") from None
    began = time.perf_counter()
    kernels = compiled_kernels(context.on_gpu)
    workers = min(len(kernels), len(os.sched_getaffinity(0)))
    if context.on_gpu:
        free, _ = torch.cuda.mem_get_info(context.device)
        workers = max(1, min(workers, free // (_GPU_MEMORY_GIB << 30)))
    shares = [(context.on_gpu, list(range(first, len(kernels), workers))) for first in range(workers)]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        results = [result for share in pool.map(compile_share, shares) for result in share]
    seconds = time.perf_counter() - began
    problems = [problem for _, problem in results if problem]
    holds(not problems, lambda: f"{len(problems)} of {len(kernels)} failed, the first: {problems[0]}")
    return {
        "kernels": len(kernels),
        "processes": workers,
        "one after the other s": sum(took for took, _ in results),
        "s": seconds,
    }


def compiled_kernels(on_gpu: bool) -> list[Any]:
    """The launches to compile: all on a GPU, the first few on a CPU, where no later stage needs them."""
    return list(distinct(steps(on_gpu)))[: None if on_gpu else _CPU_KERNELS]


def distinct(wanted: Sequence[Step]) -> Iterator[Any]:
    """The launches of some steps that are compiled separately."""
    from lab.benchmarks.gpu_acceptance.recording import meta_adapter, meta_decoder, meta_drafter, recorded_step

    seen = set()
    for step in wanted:
        context, rank = (512, 4) if step.config.hidden < 100 else (4096, 32)
        decoder = meta_decoder(step.config, step.dtype)
        adapter = meta_adapter(step.config, step.dtype, rank, step.drafts) if step.drafts else None
        sizes = {"copies": step.copies, "context": context}
        launches = list(recorded_step(decoder, step.drafts, step.batch, adapter=adapter, **sizes).launches)
        if step.drafts:  # two layers before the last are read
            decoder = meta_decoder(replace(step.config, layers=3), step.dtype)
            launches += recorded_step(decoder, step.drafts, step.batch, head=meta_drafter(decoder), **sizes).launches
        launches += recorded_step(decoder, step.drafts, step.batch, choosing=True, **sizes).launches
        for launch in launches:
            key = (launch.name, *(_kind(part) for part in launch.arguments), *launch.constants.items())
            if key not in seen:
                seen.add(key)
                yield launch


def _kind(argument: Any) -> object:
    """What Triton compiles a kernel anew for: the type of an argument, and of a number what it is divisible by."""
    if isinstance(argument, torch.Tensor):
        return argument.dtype
    return (argument == 1, argument % 16 == 0) if isinstance(argument, int) else type(argument)


def compile_share(share: tuple[bool, list[int]]) -> list[tuple[float, str]]:
    """Compile the kernels of these numbers, in a process of its own.

    Returns:
        For each the seconds, and the error if there was one.
    """
    on_gpu, numbers = share
    kernels, results = compiled_kernels(on_gpu), list[tuple[float, str]]()
    if on_gpu:
        torch.cuda.set_device(0)
    for number in numbers:
        launch, began, problem = kernels[number], time.perf_counter(), ""
        try:
            if on_gpu:
                launch.kernel.warmup(*launch.arguments, grid=launch.grid, **launch.constants)
            else:
                from lab.benchmarks.gpu_kernels import compiled

                compiled(launch, _CPU_TARGET)
        except Exception as error:  # of Triton and of ptxas
            problem = f"{launch.name}: {type(error).__name__}: {' '.join(str(error).split())[-300:]}"
        results.append((time.perf_counter() - began, problem))
    return results
