"""Steps whose kernels overlap are used where they leave what steps without leave, and not otherwise."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from model.checkpoint.checkpoint import open_checkpoint
from model.engine.cuda_graph import CUDAGraphRunner, slot_capacity
from model.nn.adapter import random_adapter
from model.nn.decoder import Decoder
from model.nn.gpu.torch_operations import TorchOperations
from model.nn.kv_slab import KeyValueSlab
from tests.model.engine.recorded_graphs import use_recorded_graphs

CPU = torch.device("cpu")


class Overlapping(TorchOperations):
    """Operations that overlap; `error` is what one of them is off by while they do."""

    def __init__(self, error: float) -> None:
        self.dependent, self.error = False, error

    def gate_up(self, *arguments: Any) -> Tensor:
        right = super().gate_up(*arguments)
        return right * (1 + self.error) if self.dependent else right


class Failing(Overlapping):
    def gate_up(self, *arguments: Any) -> Tensor:
        if self.dependent:
            raise RuntimeError("operation not permitted when stream is capturing\nwith a trace")
        return super().gate_up(*arguments)


def new_runner(model: Path, operations: Overlapping) -> CUDAGraphRunner:
    decoder = Decoder(open_checkpoint(model), CPU, "float32")
    slab = KeyValueSlab(decoder.config, decoder.dtype, CPU, 1, slot_capacity(200, 1, 2))
    runner = CUDAGraphRunner(decoder, random_adapter(decoder.config, 4, 1, seed=0), 1, slab, 2, operations)
    operations.dependent = True  # after the check of one kernel at a time
    return runner


@pytest.mark.parametrize(
    ("operations", "reason"),
    [(Overlapping(0.0), None), (Overlapping(0.5), "their results differ"), (Failing(0.0), "operation not permitted")],
)
def test_kernels_overlap_where_replayed_steps_agree(
    tiny_qwen2: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    operations: Overlapping,
    reason: str | None,
) -> None:
    use_recorded_graphs(monkeypatch)
    runner = new_runner(tiny_qwen2, operations)
    with caplog.at_level(logging.WARNING, "rejoinder.model"):
        runner.warm_up()
    assert operations.dependent == (reason is None)
    assert not any(part[:-1].any() for part in runner.state.parts)  # the last slot is nobody's
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [str(reason) in message for message in warnings] == ([] if reason is None else [True])


def test_kernels_do_not_overlap_in_steps_that_are_not_captured(tiny_qwen2: Path) -> None:
    operations = Overlapping(0.0)
    new_runner(tiny_qwen2, operations).warm_up()
    assert not operations.dependent
