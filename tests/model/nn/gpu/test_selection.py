"""The kernels run where they are right, and plain PyTorch where they are missing, wrong or do not compile."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from model.checkpoint.checkpoint import open_checkpoint
from model.decode.verify import verification_mask
from model.nn.adapter import random_adapter
from model.nn.decoder import Decoder
from model.nn.gpu.fused_pass import FusedPass
from model.nn.gpu.operations import Operations
from model.nn.gpu.selection import gpu_operations, select_pass
from model.nn.gpu.torch_operations import TorchOperations
from model.nn.step_pass import MaskedPass, StepPass, StepShape
from tests.model.nn.pretended_gpus import pretend_gpus

CPU = torch.device("cpu")


class WrongAttention(TorchOperations):
    """Attends to the wrong rows."""

    def attend(self, *arguments: Any) -> Tensor:
        *others, shape = arguments
        return super().attend(*others, replace(shape, attention_mask=shape.attention_mask.T))


class WrongSlots(TorchOperations):
    """Right for one conversation, wrong for several."""

    def attend(self, *arguments: Any) -> Tensor:
        *others, slots, shape = arguments
        return super().attend(*others, slots.flip(0), shape)


class NotANumber(TorchOperations):
    def gate_up(self, *arguments: Any) -> Tensor:
        return super().gate_up(*arguments) * torch.nan


class DoesNotCompile(TorchOperations):
    def gate_up(self, *arguments: Any) -> Tensor:
        raise RuntimeError("ptxas failed\nwith a long log")


def _selected(path: Path, operations: Operations | None) -> StepPass:
    decoder = Decoder(open_checkpoint(path), CPU, "float32")
    config = decoder.config
    cache = torch.zeros(2, config.layers, 2, config.kv_heads, 320, config.head_dim)
    shape = StepShape(cache, verification_mask(2, (), 2), 3)
    also = [replace(shape, batch=2)]
    selected = select_pass(decoder, random_adapter(config, 4, 2, seed=0), shape, operations, also)
    assert not cache.any()
    return selected


def test_right_kernels_are_used(tiny_qwen2: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rejoinder.model"):
        assert isinstance(_selected(tiny_qwen2, TorchOperations()), FusedPass)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("operations", "reason"),
    [
        (WrongAttention(), "their results differ from PyTorch's (attend"),
        (WrongSlots(), "their results differ from PyTorch's (attend"),
        (NotANumber(), "their results differ from PyTorch's (gate_up"),
        (DoesNotCompile(), "ptxas failed"),
    ],
)
def test_others_are_not_and_the_log_says_why(
    tiny_qwen2: Path, caplog: pytest.LogCaptureFixture, operations: Operations, reason: str
) -> None:
    with caplog.at_level(logging.WARNING, "rejoinder.model"):
        assert isinstance(_selected(tiny_qwen2, operations), MaskedPass)
    assert reason in caplog.messages[0] and "\n" not in caplog.messages[0]


def test_a_cpu_runs_plain_pytorch(tiny_qwen2: Path) -> None:
    assert gpu_operations(CPU) is None
    assert isinstance(_selected(tiny_qwen2, None), MaskedPass)


def test_without_triton_a_gpu_runs_plain_pytorch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pretend_gpus(monkeypatch, (9, 0))
    monkeypatch.setitem(sys.modules, "model.nn.gpu.triton_operations", None)
    assert gpu_operations(torch.device("cuda", 0)) is None
    assert "without Triton" in caplog.messages[0]
    caplog.clear()
    monkeypatch.setenv("REJOINDER_TRITON", "0")
    assert gpu_operations(torch.device("cuda", 0)) is None
    assert not caplog.messages
