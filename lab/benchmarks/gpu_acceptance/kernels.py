"""The Triton kernels: each against its twin in plain PyTorch, on the data of a step of the shapes of real models, and
steps with and without them. Both are timed. On a CPU they run in Triton's interpreter, with tiny shapes, and are not
timed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import metadata
from typing import Any

import torch
from torch import Tensor

from lab.benchmarks.gpu_acceptance.answers import expect_equal, holds
from lab.benchmarks.gpu_acceptance.context import Context, NotPossibleHere
from lab.benchmarks.gpu_acceptance.machine import copy_bandwidth
from lab.benchmarks.gpu_acceptance.random_models import QWEN_05B, QWEN_15B, TINY, random_model
from lab.benchmarks.gpu_acceptance.runners import new_runner
from model.checkpoint.checkpoint import DecoderConfig
from model.decode.draft import Draft
from model.engine.cuda_graph import CUDAGraphRunner
from model.engine.loader import LoadedModel
from model.nn.gpu.fused_pass import FusedPass
from model.nn.gpu.operations import Projection
from model.nn.gpu.torch_operations import TorchOperations
from model.nn.kv_slab import KeyValueSlab

_DRAFTS, _COPIES = 4, 7
_ONE_LAYER = replace(TINY, layers=1)
"""The interpreter takes a second for a layer."""

_LIMITS = {torch.bfloat16: 1e-2, torch.float32: 1e-4}
"""Relative errors that another order of sums explains."""


def run(context: Context) -> None:
    """Run the stage."""
    shapes = {"0.5B": QWEN_05B, "1.5B": QWEN_15B} if context.on_gpu else {"tiny": _ONE_LAYER}
    context.check("texts with and without kernels are equal", lambda: equal_texts(context))
    for label, config in shapes.items():
        compared: list[Comparison] = []
        context.check(f"{label}: kernels and twins agree", lambda c=config, to=compared: agree(context, c, to))
        for call in compared[0].calls if compared and context.on_gpu else ():
            context.check(f"{label}: {call}", lambda n=call, c=compared[0]: timed(context, c, n))
        context.check(f"{label}: a step with and without kernels", lambda c=config: steps(context, c))


def _triton(context: Context) -> Any:
    try:
        from model.nn.gpu.triton_operations import INTERPRETED, TritonOperations
    except ImportError as error:
        raise NotPossibleHere(f"needs Triton ({error})") from None
    holds(context.on_gpu != INTERPRETED, lambda: "TRITON_INTERPRET is set wrongly")
    triton, numpy = (tuple(map(int, metadata.version(name).split(".")[:2])) for name in ("triton", "numpy"))
    if INTERPRETED and triton < (3, 9) and numpy >= (2, 4):
        raise NotPossibleHere("interpreters of Triton before 3.9 do not work with numpy 2.4")
    return TritonOperations(context.device)


def equal_texts(context: Context) -> Mapping[str, Any]:
    """Two conversations of a tiny model in float32, over the border between two parts of the attention."""
    config, steps, span = (TINY, 120, 600) if context.on_gpu else (_ONE_LAYER, 3, 300)
    model = random_model(config, context.device, "float32", 2)
    texts = []
    for operations in (_triton(context), None):
        runner, slab = new_runner(model, 2, 2, span, 2, operations)
        holds(isinstance(runner._pass, FusedPass) == (operations is not None), lambda: "the kernels were not used")
        runner.warm_up()
        attachments = []
        for last in (7, 8):  # each from its own text
            cache = slab.new_cache()
            model.decoder.forward(list(range(3, 245 + last)), cache, logits="none")
            attachments.append(runner.attach(cache, last, Draft((9, 11))))
        found = {attachment: [last] for attachment, last in zip(attachments, (7, 8), strict=True)}
        for _ in range(steps):
            for attachment, result in runner.step(attachments):
                text = found[attachment]
                attachment.cache.commit([text[-1], *result.committed[:-1]])
                text += result.committed
        texts.append([*found.values()])
    expect_equal("the texts with kernels", texts[0], texts[1])
    return {"tokens": [len(text) for text in texts[0]], "steps": steps}


Call = tuple[str, tuple[Any, ...], dict[str, Any]]
"""An operation's name and its arguments."""


@dataclass
class Comparison:
    """Implements `Operations`: runs a kernel and its twin on the same input, and goes on with the kernel's result.

    Attributes:
        calls: for each kind of call the calls of all layers, to be timed.
        errors: the largest relative difference of each kind.
    """

    kernels: Any
    calls: dict[str, list[Call]] = field(default_factory=lambda: defaultdict(list))
    errors: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._both, name)

    def _both(self, name: str, *arguments: Any, **options: Any) -> Any:
        projection = next((part for part in arguments if isinstance(part, Projection)), None)
        kind = name if projection is None else f"{name} {'×'.join(map(str, projection.weight.shape))}"
        self.calls[kind].append((name, arguments, options))
        twins = arguments
        if name == "attend":
            twins = (*arguments[:5], arguments[5].clone(), arguments[6].clone(), *arguments[7:])
        found = [getattr(self.kernels, name)(*arguments, **options)]
        expected = [getattr(TorchOperations(), name)(*twins, **options)]
        if name == "attend":
            found += arguments[5:7]
            expected += twins[5:7]
        for one, other in zip(found, expected, strict=True):
            self.errors[kind] = max(self.errors[kind], _difference(one, other))
        return found[0]


def _difference(found: Any, expected: Any) -> float:
    """Relative, of tensors; of predictions that of the probabilities."""
    if isinstance(found, tuple):
        found, expected = found[1], expected[1]
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def _runner(
    context: Context, config: DecoderConfig, operations: Any
) -> tuple[LoadedModel, CUDAGraphRunner, KeyValueSlab, int]:
    """A runner with random keys and values, and how many of them a step sees."""
    precision = "bfloat16" if context.on_gpu else "float32"
    model = random_model(config, context.device, precision, _DRAFTS, source=context.device)
    capacity, past = (4096, 600) if context.on_gpu else (300, 250)
    runner, slab = new_runner(model, _DRAFTS, _COPIES, capacity, 1, operations)
    slab.keys_values.normal_()
    runner.state.past_length.fill_(past)
    return model, runner, slab, past


def agree(context: Context, config: DecoderConfig, compared: list[Comparison]) -> Mapping[str, Any]:
    """One step, every kernel of which is compared with its twin on the same input. `compared` gets the comparison."""
    model, runner, _, past = _runner(context, config, None)
    shape = runner._pass.shape
    comparison = Comparison(_triton(context))
    step = FusedPass(model.decoder, model.adapter, shape, comparison)
    tokens = torch.arange(shape.num_rows, device=context.device)
    positions = past + tokens
    with torch.inference_mode():
        lengths, slots = runner.state.past_length[:1], tokens[:1]
        step.predict(step.states(model.decoder.embedding(tokens), positions, lengths, slots, shape.capacity))
    compared.append(comparison)
    limit = _LIMITS[model.decoder.dtype]
    for kind, error in comparison.errors.items():
        holds(error < limit, lambda k=kind, e=error: f"{k} is off by {e:.1e}")
    return dict(comparison.errors)


def timed(context: Context, comparison: Comparison, kind: str) -> Mapping[str, Any]:
    """µs of a kernel and of its twin, over the weights of all layers, and GB/s of those."""
    calls = comparison.calls[kind]
    projections = [part for _, arguments, _ in calls for part in arguments if isinstance(part, Projection)]
    num_bytes = sum(part.nbytes for projection in projections for part in projection.tensors) / len(calls)
    kernel = _per_call(context, comparison.kernels, calls)
    figures = {"us": kernel, "twin us": _per_call(context, TorchOperations(), calls)}
    if num_bytes:
        figures |= {"GB/s": num_bytes / kernel / 1e3, "least us": num_bytes / copy_bandwidth(context) / 1e3}
    return figures


def _per_call(context: Context, operations: Any, calls: list[Call]) -> float:
    """µs of a call, in a graph of the calls of all layers."""

    def work() -> None:
        with torch.inference_mode():
            for name, arguments, options in calls:
                getattr(operations, name)(*arguments, **options)

    work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return context.milliseconds(graph.replay) * 1e3 / len(calls)


def steps(context: Context, config: DecoderConfig) -> Mapping[str, Any]:
    """ms of a whole step with the kernels and in plain PyTorch, and how many of its predictions are equal: a figure
    only, because random weights are unsure of a token and bfloat16 rounds."""
    figures: dict[str, Any] = {}
    predicted: list[Tensor] = []
    for label, operations in (("kernels", _triton(context)), ("PyTorch", None)):
        torch.manual_seed(0)
        _, runner, slab, past = _runner(context, config, operations)
        step, state, bucket = runner.batch_step(1, _DRAFTS), runner.state, slab.capacity

        def rewind(state: Any = state, past: int = past) -> None:
            state.past_length.fill_(past)
            state.last.fill_(5)
            state.drafts.fill_(6)
            state.copied.fill_(7)
            state.drafting.fill_(True)

        with torch.inference_mode():
            if context.on_gpu:
                step.capture(bucket, None)
            step.set_members([0])
            if context.on_gpu:
                figures[f"{label} ms"] = context.milliseconds(lambda s=step, b=bucket: s.launch(b), 50, rewind)
            rewind()
            result, _, copied = step.launch(bucket)
            if copied is not None:
                copied.synchronize()
        predicted.append(torch.cat((result[0], state.drafts[0].cpu())))
    figures["equal numbers"] = float((predicted[0] == predicted[1]).double().mean())
    return figures
