"""The GPU's kernels with real weights at full width, in Triton's interpreter: they compute what plain PyTorch does."""

from __future__ import annotations

import pytest
import torch

from model.checkpoint.checkpoint import open_checkpoint
from model.nn.gpu.fused_pass import FusedPass
from model.nn.gpu.stored_weights import StoredLinear
from tests.e2e.conftest import model_path

pytest.importorskip("triton", "3.9", "Triton before 3.9 does not work with numpy 2.4: pip install -U triton")

from lab.benchmarks.gpu_mistakes.real_layers import real_layers
from lab.benchmarks.gpu_mistakes.running import CPU, selected
from model.nn.gpu.triton_operations import TritonOperations

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

NAMES = ("qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")


@pytest.mark.parametrize("name", NAMES)
def test_the_weights_are_those_of_the_file(name: str) -> None:
    checkpoint = open_checkpoint(model_path(name))
    layer = real_layers(model_path(name), [2]).layers[0]
    assert isinstance(layer.down, StoredLinear) and isinstance(layer.query_key_value, StoredLinear)
    down = checkpoint.tensor("layers.2.mlp.down_proj.weight").bfloat16()
    assert torch.equal(layer.down.weight.expanded(), down)
    fused = torch.cat([checkpoint.tensor(f"layers.2.self_attn.{part}_proj.weight") for part in "qkv"]).bfloat16()
    assert torch.equal(layer.query_key_value.weight.expanded(), fused)


@pytest.mark.proof
def test_right_kernels_are_accepted() -> None:
    """Each kernel's results are those with expanded weights, within the rounding of bfloat16. The 1.5B would take
    another minute."""
    assert isinstance(selected(real_layers(model_path("qwen2.5-coder-0.5b"), [1, 2]), TritonOperations(CPU)), FusedPass)
