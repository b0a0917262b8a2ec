"""The check at the start accepts right kernels and rejects wrong ones. `python -m lab.benchmarks.gpu_mistakes` asks the
same with real weights."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lab.benchmarks.gpu_acceptance.random_models import TINY, RandomCheckpoint
from model.nn.cpu.block_formats import FORMATS
from model.nn.decoder import Decoder
from model.nn.gpu.block_matrix import BlockMatrix, BlockWeight
from model.nn.gpu.fused_pass import FusedPass
from model.nn.gpu.stored_weights import StoredHead, StoredLinear
from model.nn.linear import FloatHead, FloatLinear
from model.nn.step_pass import MaskedPass
from tests.model.nn.cpu.random_blocks import random_blocks

pytest.importorskip("triton", "3.9", "Triton before 3.9 does not work with numpy 2.4: pip install -U triton")

from lab.benchmarks.gpu_mistakes.mistakes import MISTAKES
from lab.benchmarks.gpu_mistakes.running import CPU, OneKernel, mistaken, selected
from model.nn.gpu.triton_operations import TritonOperations

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


def random_decoder() -> Decoder:
    """A layer and a head with random weights in the formats of real files."""
    config = replace(TINY, layers=1, hidden=256, intermediate=1024, vocab_size=321)
    decoder = Decoder(RandomCheckpoint(config, CPU), CPU, "bfloat16")

    def weight(inputs: int, *sections: tuple[str, int]) -> BlockWeight:
        matrices = []
        for seed, (name, outputs) in enumerate(sections):
            form = FORMATS[name]
            blocks = random_blocks(form, outputs, inputs, seed)
            matrices.append(BlockMatrix.of(form, blocks, inputs, CPU))
        return BlockWeight(tuple(matrices), torch.bfloat16)

    (layer,), bias = decoder.layers, getattr(decoder.layers[0].query_key_value, "bias", None)
    decoder.layers = [
        replace(
            layer,
            query_key_value=StoredLinear(weight(256, ("Q4_K", 96), ("Q6_K", 32)), bias),
            output=StoredLinear(weight(64, ("Q5_0", 256))),
            gate_up=StoredLinear(weight(256, ("Q5_K", 2048))),
            down=StoredLinear(weight(1024, ("Q6_K", 256))),
        )
    ]
    decoder.head = StoredHead(weight(256, ("Q8_0", 321)))
    return decoder


def test_right_kernels_are_accepted() -> None:
    decoder = random_decoder()
    assert isinstance(selected(decoder, TritonOperations(CPU)), FusedPass)
    assert isinstance(decoder.layers[0].down, StoredLinear)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_wrong_kernels_are_rejected_and_weights_become_floats(
    mistake: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    decoder = random_decoder()
    with mistaken(mistake, tmp_path), caplog.at_level(logging.WARNING, "rejoinder.model"):
        assert isinstance(selected(decoder, OneKernel(MISTAKES[mistake][0])), MaskedPass)
    assert "their results differ from PyTorch's" in caplog.messages[0]
    assert isinstance(decoder.layers[0].down, FloatLinear) and isinstance(decoder.head, FloatHead)
