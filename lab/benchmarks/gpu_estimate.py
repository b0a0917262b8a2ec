"""Estimates the tokens per second of one conversation on GPUs, from the bytes that a step reads and the kernels that it
starts.

    python -m lab.benchmarks.gpu_estimate

A step takes its bytes ÷ 70 % of the nominal bandwidth, plus 2 µs for each kernel, or the host's part if that is longer.
Kernels are counted from the code, on torch's `meta` device. *bfloat16* is without a block drafter; *stored* has weights
at their own bits (`STORED_BYTES`), and the block drafter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lab.benchmarks.gpu_acceptance.random_models import QWEN_05B, QWEN_15B
from lab.benchmarks.gpu_acceptance.recording import meta_adapter, meta_decoder, meta_drafter, recorded_step
from lab.benchmarks.gpu_acceptance.roofline import BANDWIDTH, NODE_US, STORED_BYTES
from model.checkpoint.checkpoint import DecoderConfig
from model.engine import cuda_graph
from model.nn.gpu.operations import StepLayer

ATTAINED = 0.7
"""Share of the nominal bandwidth that kernels which read weights attain."""

_PAST, _COPIES, _RANK = 600, 7, 32
"""Earlier tokens, copied tokens of a step as in the engine, and the rank of the bundled adapter."""


@dataclass(frozen=True)
class StepCost:
    """What a step of one conversation costs.

    Attributes:
        weights, others: bytes that it reads: weights; and the adapter or the drafter, and earlier keys and values.
        nodes: kernels, those of the drafter included.
        tokens: tokens that it commits, the least and the most.
    """

    weights: float
    others: float
    nodes: int
    tokens: tuple[float, float]

    def milliseconds(self, gigabytes_per_s: float) -> float:
        """From one step to the next."""
        reading = (self.weights + self.others) / (gigabytes_per_s * ATTAINED) / 1e6
        return max(reading + self.nodes * NODE_US / 1e3, 1e3 * cuda_graph.host_seconds(1))

    def tokens_per_s(self, gigabytes_per_s: float) -> tuple[float, float]:
        """The least and the most."""
        low, high = (tokens / self.milliseconds(gigabytes_per_s) * 1e3 for tokens in self.tokens)
        return low, high


@dataclass(frozen=True)
class Model:
    """A model.

    Attributes:
        drafts: of its bundled adapter, 0 if it has none: then nothing but a draft head drafts for it.
        tokens: tokens a step without a draft head. With the adapter as measured on a CPU; without drafts, tokens are
            copied from the conversation.
        goal: tokens per second that are aimed at on an H100.
    """

    name: str
    config: DecoderConfig
    drafts: int
    tokens: tuple[float, float]
    goal: int


MODELS = (
    Model("0.5B", QWEN_05B, 4, (1.64, 1.95), 2500),
    Model("1.5B", QWEN_15B, 0, (1.0, 1.1), 1009),
)

STORED_TOKENS = {"0.5B": (1.76, 1.94), "1.5B": (1.67, 1.97)}
"""Tokens a step with the block drafters that a CPU has: in chat, and in chat with tokens copied from the conversation,
on a CPU (docs/benchmarks/language-model.md)."""

_HEAD_DRAFTS = 4
"""Drafts of a block drafter."""


def counted(model: Model) -> StepCost:
    """What a step costs with the code as it is: what its layers and its head hold, and every kernel that it starts."""
    config, dtype = model.config, torch.bfloat16
    decoder = meta_decoder(config, dtype)
    adapter = meta_adapter(config, dtype, _RANK, model.drafts) if model.drafts else None
    step = recorded_step(decoder, model.drafts, adapter=adapter, copies=_COPIES)
    adapted = 0 if adapter is None else num_bytes(adapter.layers)
    heads = (config.heads * config.head_dim, *[config.kv_heads * config.head_dim] * 2)
    layers = [StepLayer.of(layer, heads, None) for layer in decoder.layers]
    weights = num_bytes((layers, decoder.head_weight, decoder.norm))
    return StepCost(weights, adapted + cache_bytes(config), step.nodes, model.tokens)


def stored(model: Model) -> StepCost:
    """What a step costs with weights as they are stored, and with a block drafter."""
    decoder = meta_decoder(model.config, torch.bfloat16)
    head, weights, tokens = meta_drafter(decoder), STORED_BYTES[model.name], STORED_TOKENS[model.name]
    step = recorded_step(decoder, _HEAD_DRAFTS, head=head, copies=_COPIES)
    return StepCost(weights, head.nbytes + cache_bytes(model.config), step.nodes, tokens)


def cache_bytes(config: DecoderConfig) -> int:
    """Earlier keys and values that a step reads, in bfloat16."""
    return 2 * 2 * _PAST * config.layers * config.kv_heads * config.head_dim


def num_bytes(value: Any) -> int:
    """Bytes of all tensors within dataclasses, sequences and mappings, each counted once."""
    return sum({id(part): part.nbytes for part in _tensors(value)}.values())


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
    elif hasattr(value, "__dataclass_fields__"):
        yield from _tensors([getattr(value, name) for name in value.__dataclass_fields__])


def rows(costs: Sequence[StepCost]) -> Iterator[str]:
    """A row of a table for each GPU, with a pair of columns for each cost."""
    for name, bandwidth in BANDWIDTH.items():
        cells = [name, f"{bandwidth:,}"]
        for cost in costs:
            low, high = (round(rate, -1) for rate in cost.tokens_per_s(bandwidth))
            cells += [f"{cost.milliseconds(bandwidth):.2f}", f"{low:,.0f} to {high:,.0f}"]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Print what steps cost, and a table for the GPUs."""
    costs = []
    for model in MODELS:
        for when, cost in (("bfloat16", counted(model)), ("stored", stored(model))):
            costs.append(cost)
            low, high = cost.tokens_per_s(BANDWIDTH["H100 SXM"])
            print(
                f"{model.name} {when}: {cost.weights / 1e9:.2f} GB of weights, {cost.others / 1e6:.0f} MB of others, "
                f"{cost.nodes} kernels, {cost.tokens[0]} to {cost.tokens[1]} tokens a step; on an H100 {low:,.0f} to "
                f"{high:,.0f} tokens/s, aim {model.goal:,}: {'reached' if low >= model.goal else 'missed'}"
            )
    names = [f"{model.name} {when}" for model in MODELS for when in ("bfloat16", "stored")]
    print(f"| GPU | GB/s | {' | '.join(f'{name}: ms a step | tokens/s' for name in names)} |")
    print(f"|{'---|' * (2 + 2 * len(names))}")
    print("\n".join(rows(costs)))


if __name__ == "__main__":
    main()
