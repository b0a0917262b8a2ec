"""The plain forward pass of a step: how many operations a layer takes. `test_cuda_graph.py` checks what it computes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lab.benchmarks.gpu_acceptance.counting import CountedOperations
from model.checkpoint.checkpoint import open_checkpoint
from model.decode.verify import verification_mask
from model.nn.adapter import random_adapter
from model.nn.decoder import Decoder
from model.nn.step_pass import MaskedPass, StepShape

META = torch.device("meta")


@pytest.mark.parametrize(("drafts", "limit"), [(0, 20), (2, 24)])
def test_a_layer_takes_few_operations(tiny_qwen2: Path, drafts: int, limit: int) -> None:
    """On a GPU each is a kernel, and kernels are what a step takes its time for. 40 with masks made in every layer and
    unstacked adapters."""
    counts = []
    for num_layers in (1, 3):
        decoder = Decoder(open_checkpoint(tiny_qwen2), META, "bfloat16")
        adapter = random_adapter(decoder.config, 4, drafts, seed=0).to(META, torch.bfloat16) if drafts else None
        decoder.layers = decoder.layers[:num_layers]
        config, rows = decoder.config, (drafts + 1) ** 2
        shape = StepShape(
            torch.empty(2, num_layers, 2, config.kv_heads, 256, config.head_dim, dtype=torch.bfloat16, device=META),
            verification_mask(drafts, (), drafts).to(META),
            drafts + 1,
        )
        step = MaskedPass(decoder, adapter, shape)
        x = torch.empty(rows, config.hidden, dtype=torch.bfloat16, device=META)
        position = torch.empty(1, dtype=torch.long, device=META)
        with torch.inference_mode(), CountedOperations() as operations:
            step.states(x, position.expand(rows), position, position, 256)
        counts.append(operations.count)
    assert (counts[1] - counts[0]) / 2 <= limit
