"""Linear layers and embeddings: what they compute, and layers with float weights. `cpu/linear.py` has the
block-quantized ones."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class Linear(Protocol):
    """y = x Wᵀ + b."""

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, in] → [rows, out]."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of the weights."""
        ...


Embedding = Callable[[Tensor], Tensor]
"""Looks up token embeddings: [rows] int64 → [rows, hidden]."""


def cpu_kernels_installed() -> bool:
    """Whether the compiler is installed that the CPU's int8 kernels need."""
    return importlib.util.find_spec("llvmlite") is not None


def quantize_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Symmetric int8 with one scale per row: [rows, columns] float32 → ([rows, columns] int8, [rows] float32)."""
    scale = (weight.abs().amax(dim=1) / 127).clamp_(min=1e-12)
    return (weight / scale[:, None]).round_().to(torch.int8), scale


def float32_product(x: Tensor, weight: Tensor) -> Tensor:
    """x Wᵀ, accumulated and returned in float32: [rows, in], [out, in] → [rows, out].

    Results in bfloat16 would tie: at a magnitude of 20 they are 0.125 apart. On a CPU a product of bfloat16 is rounded
    to bfloat16 all the same, because torch has no other there.
    """
    if weight.dtype == torch.float32 or weight.device.type == "cpu":
        return torch.nn.functional.linear(x, weight).float()
    return torch.mm(x, weight.T, out_dtype=torch.float32)


class FloatLinear:
    """A linear layer in the dtype of its weights [out, in]."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight, self.bias)

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes


class FloatHead(FloatLinear):
    """The output head: its logits are float32, whatever the dtype of the weights."""

    def __call__(self, x: Tensor) -> Tensor:
        return float32_product(x, self.weight)
