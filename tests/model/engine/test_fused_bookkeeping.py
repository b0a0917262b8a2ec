"""The kernels around a step compute what the plain PyTorch of `BatchStep` and `DeviceState` does, in Triton's
interpreter; where they do not, they are not used."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from model.checkpoint.checkpoint import open_checkpoint
from model.decode.draft import NO_DRAFT
from model.engine.cuda_graph import CUDAGraphRunner, slot_capacity
from model.nn.adapter import random_adapter
from model.nn.decoder import Decoder
from model.nn.gpu.fused_pass import FusedPass
from model.nn.gpu.torch_operations import TorchOperations
from model.nn.kv_slab import KeyValueSlab

pytest.importorskip("triton", "3.9", "Triton before 3.9 does not work with numpy 2.4: pip install -U triton")

from model.nn.gpu.triton_operations import TritonOperations

CPU = torch.device("cpu")

pytestmark = pytest.mark.slow


class _KernelsAround(TorchOperations):
    """Layers in plain PyTorch, and the kernels around them."""

    launch = TritonOperations(CPU).launch


def _runner(folder: Path, drafts: int, copies: int, operations: object, slots: int = 3) -> CUDAGraphRunner:
    decoder = Decoder(open_checkpoint(folder), CPU, "float32")
    adapter = random_adapter(decoder.config, 4, drafts, seed=1) if drafts else None
    slab = KeyValueSlab(decoder.config, decoder.dtype, CPU, slots, slot_capacity(200, drafts, copies))
    runner = CUDAGraphRunner(decoder, adapter, drafts, slab, copies, operations)  # type: ignore[arg-type]
    assert isinstance(runner._pass, FusedPass)
    return runner


@pytest.mark.parametrize(("drafts", "copies"), [(0, 0), (0, 5), (2, 0), (2, 4), (1, 3)])
@pytest.mark.parametrize("batch", [1, 3])
def test_the_kernels_around_a_step_do_what_plain_pytorch_does(
    tiny_qwen2: Path, drafts: int, copies: int, batch: int
) -> None:
    step = _runner(tiny_qwen2, drafts, copies, _KernelsAround()).batch_step(batch, drafts)
    assert step._fused is not None and step.bookkeeping_agrees()
    assert not any(part.any() for part in step._state.parts)


def test_steps_with_the_kernels_around_them_commit_the_same_text(tiny_qwen2: Path) -> None:
    """This tiny model repeats itself, so copies are accepted."""
    texts = []
    for operations in (TorchOperations(), _KernelsAround()):
        runner = _runner(tiny_qwen2, 1, 3, operations, 1)
        cache, text = runner._slab.new_cache(), [40]
        runner._decoder.forward(list(range(1, 30)), cache, logits="none")
        attachment = runner.attach(cache, 40, NO_DRAFT)
        assert attachment is not None
        sizes = []
        for _ in range(12):
            ((_, result),) = runner.step([attachment])
            cache.commit([text[-1], *result.committed[:-1]])
            text += result.committed
            sizes.append(len(result.committed))
        texts.append(text)
        assert max(sizes) > 1
    assert texts[0] == texts[1]


@pytest.mark.parametrize("broken", ["raises", "writes nothing", "writes elsewhere"])
def test_kernels_that_are_wrong_here_are_not_used(
    tiny_qwen2: Path, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    operations = _KernelsAround()
    launch = operations.launch

    def wrong(kernel: object, grid: tuple[int, ...], *arguments: object, **constants: object) -> None:
        if broken == "raises":
            raise RuntimeError("no kernel image is available")
        if broken == "writes elsewhere":
            launch(kernel, grid, *arguments, **constants)
            arguments[8 if len(arguments) < 22 else 11].add_(1)  # type: ignore[union-attr,attr-defined]

    operations.launch = wrong  # type: ignore[method-assign]
    runner = _runner(tiny_qwen2, 1, 3, operations)
    runner._check_bookkeeping()
    assert runner.batch_step(1, 1)._fused is None
    assert "the kernels around a step cannot be used here" in caplog.text
