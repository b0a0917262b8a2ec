"""Linear layers whose weights stay as a GGUF file stores them. The steps' kernels read them in blocks
(`block_kernels.py`); other forward passes expand them first."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from model.checkpoint.checkpoint import Checkpoint
from model.checkpoint.gguf import StoredBlocks
from model.nn.cpu.block_formats import BLOCK, FORMATS, BlockFormat
from model.nn.cuda import agrees
from model.nn.gpu.block_matrix import MAX_SECTIONS, BlockMatrix, BlockWeight
from model.nn.linear import FloatHead, FloatLinear, float32_product

Expansion = Callable[[BlockMatrix, Tensor], None]
"""Expands weights to a matrix [outputs, inputs]."""

_TRIAL_ROWS, _TRIAL_BLOCKS = 64, 2
"""Of the matrices with which the kernel is tried."""


class StoredLinear:
    """A linear layer with weights in blocks."""

    def __init__(self, weight: BlockWeight, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight.expanded(), self.bias)

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes

    def expanded(self) -> FloatLinear:
        """The same layer with float weights."""
        return FloatLinear(self.weight.expanded(), self.bias)


class StoredHead(StoredLinear):
    """The output head: its logits are float32."""

    def __call__(self, x: Tensor) -> Tensor:
        return float32_product(x, self.weight.expanded())

    def expanded(self) -> FloatHead:
        return FloatHead(self.weight.expanded())


def stored_weight(
    checkpoint: Checkpoint, names: Sequence[str], device: torch.device, dtype: torch.dtype, sections: int = MAX_SECTIONS
) -> BlockWeight | None:
    """The matrices `names`, which have the same input, one below the other; None if the kernels cannot read them: the
    file has one in another format, or they have more formats than a kernel takes.

    Args:
        sections: formats that they may have.

    Raises:
        BadModelFile: the checkpoint lacks one.
    """
    runs: list[list[StoredBlocks]] = []
    for name in names:
        stored = checkpoint.blocks(name)
        if stored is None or stored.format not in FORMATS or stored.shape[1] % BLOCK:
            return None
        if runs and runs[-1][0].format == stored.format:
            runs[-1].append(stored)
        else:
            runs.append([stored])
    if len(runs) > sections:
        return None
    matrices = []
    for run in runs:
        rows = run[0].blocks if len(run) == 1 else np.concatenate([one.blocks for one in run])
        matrices.append(BlockMatrix.of(FORMATS[run[0].format], rows, run[0].shape[1], device))
        for one in run:
            one.release()
    return BlockWeight(tuple(matrices), dtype, _expansion(device, dtype))


@cache
def _expansion(device: torch.device, dtype: torch.dtype) -> Expansion | None:
    """The kernel that expands weights on a device; None where plain PyTorch does: without Triton, with
    `REJOINDER_TRITON=0`, and where the kernel fails."""
    if device.type != "cuda" or os.environ.get("REJOINDER_TRITON") == "0":
        return None
    try:
        from model.nn.gpu.block_launches import expand
    except ImportError:
        return None
    return expand if _is_right(expand, device, dtype) else None


def _is_right(expand: Expansion, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a kernel expands small matrices as plain PyTorch does. A C compiler may be missing, for example."""
    warning = "the Triton kernel that expands weights cannot be used here"
    return all(
        agrees(partial(_expands, expand, FORMATS[name], device, dtype), warning, f"it expands {name} wrongly")
        for name in ("Q4_K", "Q8_0")
    )


def _expands(expand: Expansion, form: BlockFormat, device: torch.device, dtype: torch.dtype) -> bool:
    shape = (_TRIAL_ROWS, _TRIAL_BLOCKS * form.stored_bytes)
    stored = np.random.default_rng(0).integers(0, 60, shape, np.uint8)
    trial = BlockMatrix.of(form, stored, _TRIAL_BLOCKS * form.stored_block, device)
    out = torch.empty(_TRIAL_ROWS, trial.inputs, dtype=dtype, device=device)
    expand(trial, out)
    return torch.allclose(out, trial.expanded(0, _TRIAL_ROWS).to(dtype), rtol=0.02, atol=1e-3)
