"""Stage 2: how long a step takes with the shapes of real models and random weights, next to the least time in which its
bytes can be read, and how fast an answer is with the host's part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.gpu_acceptance.answers import ask, running
from benchmarks.gpu_acceptance.context import Context
from benchmarks.gpu_acceptance.machine import copy_bandwidth
from benchmarks.gpu_acceptance.random_models import QWEN_05B, QWEN_15B, TINY, random_model
from model.checkpoint.checkpoint import DecoderConfig
from model.engine.cuda_graph import CUDAGraphRunner
from model.engine.loader import LoadedModel
from model.nn.forward_batch import text_input

_DRAFTS = (0, 2, 4)
_COPIES = 8
_ACCEPTED = (1.64, 1.95)
"""Tokens per step that real weights and their adapters gave on a CPU: random weights accept almost no drafts."""


def run_small(context: Context) -> None:
    """The 0.5B; on a CPU a tiny model instead."""
    _run(context, QWEN_05B if context.on_gpu else TINY)


def run_large(context: Context) -> None:
    """The 1.5B."""
    _run(context, QWEN_15B)


def _run(context: Context, config: DecoderConfig) -> None:
    precision = "bfloat16" if context.on_gpu else "float32"
    model = random_model(config, context.device, precision, max(_DRAFTS), source=context.device)
    bandwidth = copy_bandwidth(context)
    long = 4000 if context.on_gpu else 700
    for drafts in _DRAFTS:
        for past in (100, long):
            context.check(
                f"a step with {drafts} drafts after {past} tokens",
                lambda d=drafts, p=past: step(context, model, d, p, bandwidth),
            )
    for rows in (64, 1024) if context.on_gpu else (64, 256):
        context.check(f"{rows} rows of a prompt", lambda r=rows: prompt(context, model, r))
    context.check("an answer with the host's part", lambda: whole_answer(context, model))


def step(context: Context, model: LoadedModel, drafts: int, past: int, bandwidth: float) -> Mapping[str, Any]:
    """ms of a step, replayed on a GPU, and of reading its weights, keys and values once."""
    decoder = model.decoder
    capacity = min(4096, decoder.config.context_length)
    runner = CUDAGraphRunner(decoder, model.adapter if drafts else None, drafts, capacity, _COPIES)
    runner._keys_values.normal_()
    bucket = next(size for size in runner._buckets if size >= past + 2 * runner.num_rows)

    def launch() -> None:
        if context.on_gpu:
            runner._graph(bucket).replay()
        else:
            runner._run(bucket)

    def rewind() -> None:
        runner._state.past_length.fill_(past)

    rewind()
    with torch.inference_mode():
        took = context.milliseconds(launch, 50 if context.on_gpu else 5, rewind)
        rewind()
        with _Operations() as operations:
            runner._run(bucket)
    tokens_bytes = 2 * len(decoder.layers) * decoder.config.kv_heads * decoder.config.head_dim * decoder.dtype.itemsize
    least = (decoder.nbytes + past * tokens_bytes) / bandwidth / 1e6
    figures = {"ms": took, "least ms": least, "rows": runner.num_rows, "operations": operations.count}
    if drafts == max(_DRAFTS):
        figures |= {f"tokens/s at {accepted} a step": accepted / took * 1e3 for accepted in _ACCEPTED}
    if context.on_gpu:
        rewind()
        figures["kernels"] = _kernels(launch)
    return figures


def prompt(context: Context, model: LoadedModel, rows: int) -> Mapping[str, Any]:
    """ms of a forward pass that reads this much of a prompt, after as many tokens again."""
    cache = model.decoder.new_cache()
    model.decoder.forward([1] * rows, cache, logits="none")
    ids = list(range(rows))
    took = context.milliseconds(lambda: model.decoder.run([text_input(cache, ids, 0)]), 10)
    return {"ms": took, "tokens/s": rows / took * 1e3}


def whole_answer(context: Context, model: LoadedModel) -> Mapping[str, Any]:
    """An answer of a conversation that has the engine to itself: every step with its scheduling, text and queue."""
    tokens = 200 if context.on_gpu else 30
    with running(model, cuda_graphs=True) as engine:
        ask(engine, "hello", 10)
        result = ask(engine, "Where does the river rise?", tokens)
    per_step = (result.seconds - result.first_s) / max(1, result.steps - 1)
    return {
        "ms a step": per_step * 1e3,
        "first token ms": result.first_s * 1e3,
        "tokens": result.tokens,
        "steps": result.steps,
    }


class _Operations(TorchDispatchMode):
    """Counts torch's operations; views cost nothing and are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def _kernels(launch: Any) -> int:
    """Kernels of one launch, as the profiler sees them."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        launch()
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profiler.events())
