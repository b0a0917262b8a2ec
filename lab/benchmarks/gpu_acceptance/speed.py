"""Stage 2: how long a step takes with the shapes of real models and random weights, next to the least time in which its
bytes can be read and its kernels started, and how fast an answer is with the host's part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from lab.benchmarks.gpu_acceptance.answers import ask, running
from lab.benchmarks.gpu_acceptance.context import Context
from lab.benchmarks.gpu_acceptance.counting import CountedOperations
from lab.benchmarks.gpu_acceptance.machine import copy_bandwidth, graph_node
from lab.benchmarks.gpu_acceptance.random_models import QWEN_05B, QWEN_15B, TINY, random_model
from lab.benchmarks.gpu_acceptance.roofline import step_roofline
from lab.benchmarks.gpu_acceptance.runners import new_runner
from model.checkpoint.checkpoint import DecoderConfig
from model.engine.loader import LoadedModel
from model.nn.forward_batch import text_input
from model.nn.gpu.fused_pass import FusedPass
from model.nn.gpu.selection import gpu_operations

_DRAFTS = (0, 2, 4)
_COPIES = 7
_ACCEPTED = (1.64, 1.95)
"""Tokens per step that real weights and their adapters gave on a CPU: random weights accept almost no drafts."""


def run_small(context: Context) -> None:
    """The 0.5B; on a CPU a tiny model instead, with few drafts."""
    _run(context, QWEN_05B, _DRAFTS[:-1])


def run_large(context: Context) -> None:
    """The 1.5B; on a CPU a tiny model instead, with many drafts."""
    _run(context, QWEN_15B, _DRAFTS[-1:])


def _run(context: Context, config: DecoderConfig, drafts_on_cpu: Sequence[int]) -> None:
    precision = "bfloat16" if context.on_gpu else "float32"
    config = config if context.on_gpu else TINY
    model = random_model(config, context.device, precision, max(_DRAFTS), source=context.device)
    bandwidth = copy_bandwidth(context)
    node_us = graph_node(context)["us"] if context.on_gpu else 0.0
    long = 4000 if context.on_gpu else 700
    for drafts in _DRAFTS if context.on_gpu else drafts_on_cpu:
        for past in (100, long):
            context.check(
                f"a step with {drafts} drafts after {past} tokens",
                lambda d=drafts, p=past: step(context, model, d, p, 1, bandwidth, node_us),
            )
    for batch, drafts in ((8, 3), (16, 2), (64, 1), (64, 2)) if context.on_gpu else ((4, 2),):
        context.check(
            f"a step of {batch} conversations with {drafts} drafts",
            lambda b=batch, d=drafts: step(context, model, d, 600, b, bandwidth, node_us),
        )
    for rows in (64, 1024) if context.on_gpu else (64, 256):
        context.check(f"{rows} rows of a prompt", lambda r=rows: prompt(context, model, r))
    context.check("an answer with the host's part", lambda: whole_answer(context, model))


def step(
    context: Context, model: LoadedModel, drafts: int, past: int, batch: int, bandwidth: float, node_us: float
) -> Mapping[str, Any]:
    """ms of a step as the engine runs it, replayed on a GPU, and the least time by its roofline.

    Args:
        batch: conversations.
    """
    decoder = model.decoder
    capacity = min(4096, decoder.config.context_length)
    runner, slab = new_runner(model, drafts, _COPIES, capacity, batch, gpu_operations(context.device))
    slab.keys_values.normal_()
    needed = past + 2 * runner.rows_each
    bucket = next(size for size in runner.buckets if size >= needed)
    batched = runner.batch_step(batch, drafts)

    def launch() -> None:
        batched.launch(bucket)

    def rewind() -> None:
        runner.state.past_length.fill_(past)

    rewind()
    with torch.inference_mode():
        if context.on_gpu:
            batched.capture(bucket, None)
        batched.set_members(list(range(batch)))
        took = context.milliseconds(launch, 50 if context.on_gpu else 5, rewind)
        rewind()
        with CountedOperations() as counted:
            batched.run(bucket)
    rank = 0 if model.adapter is None or not drafts else model.adapter.layers[0]["q"].a.shape[0]
    fused = isinstance(runner._pass, FusedPass)
    roofline = step_roofline(decoder.config, decoder.dtype.itemsize, rank, past * batch)
    nodes = counted.count + roofline.nodes if fused else counted.count
    least = replace(roofline, nodes=nodes).milliseconds(bandwidth, node_us)
    figures = {
        "ms": took,
        "roofline ms": least,
        "bytes alone ms": replace(roofline, nodes=0).milliseconds(bandwidth),
        "kernels of Triton": fused,
        "rows": batched.num_rows,
        "operations": nodes,
    }
    if drafts == max(_DRAFTS):
        figures |= {f"tokens/s at {accepted} a step": accepted / took * 1e3 for accepted in _ACCEPTED}
    if batch > 1:
        figures["tokens/s together without drafts"] = batch / took * 1e3
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
    with running(model, cuda_graphs=True, max_slots=1) as engine:
        ask(engine, "hello", 10)
        result = ask(engine, "Where does the river rise?", tokens)
    per_step = (result.seconds - result.first_s) / max(1, result.steps - 1)
    return {
        "ms a step": per_step * 1e3,
        "first token ms": result.first_s * 1e3,
        "tokens": result.tokens,
        "steps": result.steps,
    }


def _kernels(launch: Any) -> int:
    """Kernels of one launch, as the profiler sees them."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        launch()
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profiler.events())
