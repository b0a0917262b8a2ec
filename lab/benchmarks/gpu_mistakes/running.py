"""Runs the check at the start with kernels that have a mistake, in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch

from lab.benchmarks.gpu_mistakes.mistakes import DRAFTER_MISTAKES, MISTAKES
from model.decode.verify import verification_mask
from model.nn.adapter import random_adapter
from model.nn.batch_drafter import BatchDrafter
from model.nn.decoder import Decoder
from model.nn.gpu import (
    attention_kernel,
    block_kernels,
    drafter_kernels,
    kernels,
    tiling,
    triton_drafter,
    triton_operations,
)
from model.nn.gpu.drafter_operations import TorchDrafterOperations
from model.nn.gpu.fused_drafter import FusedDrafter
from model.nn.gpu.operations import Operations
from model.nn.gpu.selection import select_drafter, select_pass
from model.nn.gpu.torch_operations import TorchOperations
from model.nn.gpu.triton_operations import TritonOperations
from model.nn.step_pass import StepPass, StepShape

CPU = torch.device("cpu")

_NUMBER = itertools.count()


@contextmanager
def mistaken(name: str, folder: Path) -> Iterator[None]:
    """The kernels with a mistake, while this is entered."""
    _, module, right, wrong = {**MISTAKES, **DRAFTER_MISTAKES}[name]
    modules = (kernels, block_kernels, attention_kernel, drafter_kernels)
    names = {one: f"mistaken_{one.__name__.rpartition('.')[2]}_{next(_NUMBER)}" for one in modules}
    made = {}
    for one in modules:  # the others import the first
        assert one.__file__ is not None
        text = Path(one.__file__).read_text(encoding="utf-8")
        if one is module:
            assert text.count(right) == 1, f"{right!r} is there {text.count(right)} times"
            text = text.replace(right, wrong)
        path = folder / f"{names[one]}.py"
        path.write_text(text.replace("model.nn.gpu.kernels", names[kernels]), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(names[one], path)
        assert spec is not None and spec.loader is not None
        made[one] = importlib.util.module_from_spec(spec)
        with patch.dict("sys.modules", {names[key]: value for key, value in made.items()}):
            spec.loader.exec_module(made[one])
    with (
        patch.object(triton_operations, "kernels", made[kernels]),
        patch.object(triton_operations, "block_kernels", made[block_kernels]),
        patch.object(triton_operations, "attention_kernel", made[attention_kernel]),
        patch.object(triton_drafter, "drafter_kernels", made[drafter_kernels]),
    ):
        yield


class OneKernel(TorchOperations):
    """Plain PyTorch but for one operation: the interpreter takes seconds for a step."""

    def __init__(self, name: str) -> None:
        setattr(self, name, getattr(TritonOperations(CPU), name))


class OneDrafterKernel(TorchDrafterOperations):
    """The same of the operations that draft."""

    def __init__(self, name: str) -> None:
        setattr(self, name, getattr(triton_drafter.TritonDrafterOperations(TritonOperations(CPU)), name))


class LayersInPyTorch(TorchOperations):
    """What passes for Triton's kernels of layers where those that draft are checked."""

    def __init__(self) -> None:
        kernels = TritonOperations(CPU)
        self.launch, self.counters = kernels.launch, kernels.counters


_ADAPTER_SCALE = 50
"""Random adapters add little to random weights."""

_WIDE = 1024


def selected(decoder: Decoder, operations: Operations) -> StepPass:
    """The pass of a step of 9 rows that the check at the start chooses."""
    config = decoder.config
    cache = torch.zeros(2, config.layers, 1, config.kv_heads, 320, config.head_dim, dtype=torch.bfloat16)
    adapter = random_adapter(config, 4, 2, seed=0).to(CPU, torch.bfloat16)
    for low in (low for layer in adapter.layers for low in layer.values()):
        low.b.mul_(_ADAPTER_SCALE)
    with wide_tiles():
        return select_pass(decoder, adapter, StepShape(cache, verification_mask(2, (), 2), 3), operations)


def selected_drafter(
    decoder: Decoder, drafter: BatchDrafter, own: OneDrafterKernel, conversations: int, drafts: int
) -> FusedDrafter | None:
    """The drafter that the check at the start chooses."""
    with wide_tiles(), patch.object(triton_drafter, "TritonDrafterOperations", lambda _: own):
        return select_drafter(decoder, drafter, LayersInPyTorch(), conversations, drafts)


@contextmanager
def wide_tiles() -> Iterator[None]:
    """The interpreter takes as long for a narrow tile as for a wide one."""
    with (
        patch.object(tiling, "_WIDTHS", (_WIDE, 512, 256, 128, 64, 32, 16)),
        patch.object(tiling, "_ENOUGH_PROGRAMS", 1),
        patch.object(triton_operations, "GATE_UP_COLUMNS", _WIDE),
        patch.object(triton_operations, "HEAD_COLUMNS", 256),
        patch.object(triton_drafter, "_COLUMNS", 128),
        patch.object(triton_drafter, "_TILES", 2),
    ):
        yield
