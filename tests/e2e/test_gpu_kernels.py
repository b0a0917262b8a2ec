"""The GPU's kernels with real weights at full width, in Triton's interpreter: they compute what plain PyTorch does."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from model.checkpoint.checkpoint import open_checkpoint
from model.nn.decoder import Decoder
from model.nn.gpu.block_matrix import BlockMatrix, BlockWeight
from model.nn.gpu.fused_pass import FusedPass
from model.nn.gpu.stored_weights import StoredHead, StoredLinear
from tests.e2e.conftest import model_path

pytest.importorskip("triton", "3.9", "interpreters before it do not work with numpy 2.4")

from model.nn.gpu.triton_operations import TritonOperations
from tests.model.nn.gpu.broken_kernels import CPU, selected

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

TOKENS = 1000
"""The last tokens of the vocabulary, which the head of these tests has: the interpreter takes a minute for all."""

NAMES = ("qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")


def _decoder(name: str, layers: list[int]) -> Decoder:
    """Some layers of a model, as a GPU loads them."""
    checkpoint = open_checkpoint(model_path(name))
    checkpoint.config = replace(checkpoint.config, layers=max(layers) + 1)
    decoder = Decoder(checkpoint, CPU, "stored")
    decoder.layers = [decoder.layers[number] for number in layers]
    assert all(isinstance(layer.gate_up, StoredLinear) for layer in decoder.layers)
    head = decoder.head
    assert isinstance(head, StoredHead)
    (whole,) = head.weight.sections
    low, high, words, factors = whole.planes
    part = BlockMatrix(
        whole.form,
        TOKENS,
        whole.inputs,
        low[:, -TOKENS:].contiguous(),
        None if high is None else high[:, -TOKENS:].contiguous(),
        None if words is None else words[..., -TOKENS:].contiguous(),
        factors[..., -TOKENS:].contiguous(),
    )
    decoder.head = StoredHead(BlockWeight((part,), torch.bfloat16))
    decoder.config = replace(decoder.config, layers=len(layers), vocab_size=TOKENS)
    return decoder


@pytest.mark.parametrize("name", NAMES)
def test_the_weights_are_those_of_the_file(name: str) -> None:
    checkpoint = open_checkpoint(model_path(name))
    layer = _decoder(name, [2]).layers[0]
    assert isinstance(layer.down, StoredLinear) and isinstance(layer.query_key_value, StoredLinear)
    down = checkpoint.tensor("layers.2.mlp.down_proj.weight").bfloat16()
    assert torch.equal(layer.down.weight.expanded(), down)
    fused = torch.cat([checkpoint.tensor(f"layers.2.self_attn.{part}_proj.weight") for part in "qkv"]).bfloat16()
    assert torch.equal(layer.query_key_value.weight.expanded(), fused)


def test_right_kernels_are_accepted() -> None:
    """Each kernel's results are those with expanded weights, within the rounding of bfloat16. The 1.5B would take
    another minute."""
    assert isinstance(selected(_decoder("qwen2.5-coder-0.5b", [1, 2]), TritonOperations(CPU)), FusedPass)
