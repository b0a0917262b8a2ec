"""Blocks of diffusion models: a captured forward pass computes what one that is not captured does, and both are timed
with the shapes of SDAR-1.7B and Fast-dLLM v2 1.5B."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from lab.benchmarks.gpu_acceptance.answers import holds
from lab.benchmarks.gpu_acceptance.context import Context
from lab.benchmarks.gpu_acceptance.random_models import QWEN_15B, TINY_BLOCKS, random_model
from model.checkpoint.architectures import get_family
from model.checkpoint.checkpoint import DecoderConfig
from model.engine.cuda_blocks import CapturedBlocks
from model.nn.attention import denoising_mask, text_mask
from model.nn.forward_batch import MASK, ForwardInput
from model.nn.gpu.selection import gpu_operations
from model.nn.kv_slab import KeyValueSlab

SDAR_17B = DecoderConfig(
    "sdar", "qwen3", 151_936, 2048, 28, 16, 8, 128, 6144, 32_768, 1e-6, get_family("sdar").diffusion
)
FAST_DLLM_15B = replace(QWEN_15B, family="fast-dllm-v2", diffusion=get_family("fast-dllm-v2").diffusion)
"""The published shapes."""

_MAX_ERROR = {torch.bfloat16: 1e-1, torch.float32: 1e-4}
"""Relative differences of logits that another order of sums explains."""


def run(context: Context) -> None:
    """Run the stage."""
    shapes = {"SDAR-1.7B": SDAR_17B, "Fast-dLLM v2 1.5B": FAST_DLLM_15B} if context.on_gpu else {"tiny": TINY_BLOCKS}
    for name, config in shapes.items():
        context.check(f"a denoising step of {name}", lambda c=config: denoising_step(context, c))


def denoising_step(context: Context, config: DecoderConfig) -> Mapping[str, Any]:
    """ms of the steps of a block with and without capture: of the first one, which reads the finished block before it,
    and of the others."""
    diffusion = config.diffusion
    assert diffusion is not None
    model = random_model(config, context.device, "bfloat16" if context.on_gpu else "float32", source=context.device)
    decoder, size = model.decoder, diffusion.block_size
    past = 640 if context.on_gpu else 40
    slab = KeyValueSlab(config, decoder.dtype, context.device, 1, past + 128)
    blocks = CapturedBlocks(decoder, None, diffusion, slab, gpu_operations(context.device))
    blocks.warm_up()
    cache = slab.new_cache()
    decoder.forward(list(range(past)), cache, logits="none")
    figures: dict[str, Any] = {}
    for name, num_clean in (("first", size), ("other", 0)):
        text = text_mask(diffusion.text_attention, num_clean, past, size)[:, past:]
        tokens = [*range(num_clean), *[MASK] * size]
        inputs = ForwardInput(
            cache, tokens, range(past, past + len(tokens)), denoising_mask(text, [size], diffusion.block_attention),
            [False] * len(tokens), size + (num_clean > 0),
        )  # fmt: skip
        found, expected = blocks.run(inputs), decoder.run([inputs])[0]
        holds(found is not None, lambda: "there is no captured forward pass for it")
        assert found is not None
        known = torch.isfinite(expected)  # the mask token's logits are not
        error = float((found[known] - expected[known]).norm() / expected[known].norm())
        holds(error < _MAX_ERROR[decoder.dtype], lambda n=name, e=error: f"the {n} step is off by {e:.1e}")
        figures[f"{name}: ms"] = context.milliseconds(lambda i=inputs: blocks.run(i))
        figures[f"{name}: ms not captured"] = context.milliseconds(lambda i=inputs: decoder.run([i]))
        figures[f"{name}: error"] = error
    return figures
