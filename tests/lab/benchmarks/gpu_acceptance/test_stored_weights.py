"""A step with weights in blocks reads no more bytes than the bundled models' files store."""

from __future__ import annotations

import pytest
import torch

from lab.benchmarks.gpu_acceptance.random_models import QWEN_05B, QWEN_15B
from model.checkpoint.checkpoint import DecoderConfig
from model.nn.cpu.block_formats import FORMATS
from model.nn.gpu.block_matrix import BlockMatrix
from tests.model.nn.cpu.random_blocks import random_blocks

pytest.importorskip("triton", reason='Triton is not installed: pip install -e ".[test]"')

from lab.benchmarks.gpu_acceptance.recording import Launch, recorded_pass
from lab.benchmarks.gpu_acceptance.stored_weights import meta_matrix

WEIGHTS = {"project_blocks": slice(2, 10), "gate_up_blocks": slice(2, 6), "predict_tile_blocks": slice(2, 6)}
"""Which of a kernel's arguments are weights."""

ADAPTER = {"project_blocks": slice(11, 13), "gate_up_blocks": slice(7, 9)}


def _bytes(launch: Launch, parts: dict[str, slice]) -> int:
    chosen = launch.arguments[parts[launch.name]] if launch.name in parts else ()
    return sum(part.nbytes for part in chosen if part is not None)


@pytest.mark.parametrize(
    ("config", "limit", "head", "adapter", "cache"),
    [(QWEN_05B, 0.400e9, 0.145e9, 0.0353e9, 0.008e9), (QWEN_15B, 0.990e9, 0.192e9, 0.074e9, 0.0185e9)],
    ids=["0.5b", "1.5b"],
)
def test_a_step_reads_weights_at_their_own_bits(
    config: DecoderConfig, limit: float, head: float, adapter: float, cache: float
) -> None:
    """The limit includes the output head."""
    launches = recorded_pass(config, torch.bfloat16, 4, 7, 32, 640, stored=True)
    assert len(launches) == 5 * config.layers + 2
    assert 0.97 * limit < sum(_bytes(launch, WEIGHTS) for launch in launches) <= limit
    assert 0.98 * head < sum(_bytes(one, WEIGHTS) for one in launches if one.name == "predict_tile_blocks") <= head
    assert 0.98 * adapter < sum(_bytes(launch, ADAPTER) for launch in launches) <= adapter
    assert 0.97 * cache < sum(_bytes(launch, {"attend": slice(6, 8)}) for launch in launches) <= cache


@pytest.mark.parametrize("name", ["Q4_K", "Q5_0", "Q5_K", "Q6_K", "Q8_0"])
def test_the_counted_planes_are_those_of_repacked_weights(name: str) -> None:
    form = FORMATS[name]
    inputs = 512 if form.stored_block == 256 else 416
    real = BlockMatrix.of(form, random_blocks(form, 24, inputs, 0), inputs, torch.device("cpu"))
    counted = meta_matrix(form, 24, inputs)
    shapes = [
        [None if plane is None else (plane.shape, plane.dtype) for plane in one.planes] for one in (real, counted)
    ]
    assert shapes[0] == shapes[1]
