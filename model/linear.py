"""Matrix products with weights kept as floats, or as int8 with activations quantized row by row on the CPU.

Each row has its own activation scale and the sums are exact integers (`weight_levels` sees to that), so a row's
result does not depend on the rows beside it: several drafts can share a pass with the text they are checked against.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

_LEVELS = 127
_ZERO = 128
"""Activations are stored as unsigned bytes around 128: the CPU's VNNI instructions multiply unsigned by signed."""

_ROUNDING = torch.tensor(_ZERO + 0.5)
"""Added before the fraction is dropped: one operation that shifts and rounds."""


class Linear(Protocol):
    """y = x Wᵀ + b."""

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, in] → [rows, out]."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of the weights."""
        ...

    @property
    def weights(self) -> int:
        """How many there are."""
        ...


@cache
def weight_levels() -> int:
    """The largest int8 weight that this processor multiplies exactly, or 0 where int8 does not run at all.

    Processors without VNNI add pairs of products in 16 bits, which overflows for large weights: 255 · 127 · 2. There
    weights are kept to 6 bits and a sign. Found out by trying the worst case.
    """
    worst = torch.full((16, 64), 1.0)
    for levels in (127, 63):
        try:
            rows = torch.full((16, 64), levels, dtype=torch.int8)
            product = Int8Linear(rows, torch.full((16,), 1 / levels))
            if torch.allclose(product(worst), torch.tensor(64.0), rtol=0.02):
                return levels
        except (RuntimeError, AttributeError, NotImplementedError):
            return 0
    return 0


def int8_runs_here() -> bool:
    """Whether this build of torch on this processor multiplies int8, and Numba is there for the rest of a pass."""
    return weight_levels() > 0 and importlib.util.find_spec("numba") is not None


def quantize_rows(weight: Tensor, levels: int | None = None) -> tuple[Tensor, Tensor]:
    """Symmetric int8 with one scale per row: [rows, columns] float32 → ([rows, columns] int8, [rows] float32).

    Args:
        levels: the largest int8 value; what this processor multiplies exactly when not given.
    """
    scale = (weight.abs().amax(dim=1) / (levels or weight_levels() or _LEVELS)).clamp_(min=1e-12)
    return (weight / scale[:, None]).round_().to(torch.int8), scale


class FloatLinear:
    """Weights in the dtype they are given: [out, in]."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self._bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight, self._bias)

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes

    @property
    def weights(self) -> int:
        return self.weight.numel()


class Int8Linear:
    """Weights as int8 with one scale per output row, symmetric; activations as int8 with one scale per row.

    The product runs in oneDNN (`onednn::qlinear_pointwise`), which keeps the weights in its own packed layout.

    Args:
        rows, scale: the weights as `quantize_rows` makes them: [out, in] int8, [out] float32.
        bias: [out] float32, or None.

    Attributes:
        bias: as it was given; `multiply` leaves it to the caller.
        outputs: how many numbers a row becomes.
    """

    def __init__(self, rows: Tensor, scale: Tensor, bias: Tensor | None = None) -> None:
        self._packed = torch.ops.onednn.qlinear_prepack(rows, None)
        self._scale, self.bias = scale / _LEVELS, bias
        self._zero_points = torch.zeros(rows.shape[0], dtype=torch.int64)
        self.outputs, self.nbytes, self.weights = rows.shape[0], rows.nbytes, rows.numel()

    def __call__(self, x: Tensor) -> Tensor:
        largest = x.abs().amax(dim=-1, keepdim=True).clamp_(min=1e-12)
        y = self.multiply(torch.addcdiv(_ROUNDING, x, largest, value=_LEVELS).to(torch.uint8))
        return y.mul_(largest) if self.bias is None else torch.addcmul(self.bias, y, largest)

    def multiply(self, levels: Tensor) -> Tensor:
        """[rows, in] uint8, activations as levels around 128 → [rows, out] float32, to be multiplied by each row's
        largest magnitude; the bias is not in it."""
        y: Tensor = torch.ops.onednn.qlinear_pointwise(
            levels, 1.0, _ZERO, self._packed, self._scale, self._zero_points,
            None, 1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        return y


class FloatEmbedding:
    """Token embeddings in the dtype they are given: [vocabulary, hidden]."""

    def __init__(self, table: Tensor) -> None:
        self._table = table
        self.nbytes = table.nbytes

    def __call__(self, ids: Tensor) -> Tensor:
        """[rows] int64 → [rows, hidden]."""
        return self._table[ids]


class Int8Embedding:
    """Token embeddings as `quantize_rows` makes them; rows come back as float32."""

    def __init__(self, rows: Tensor, scale: Tensor) -> None:
        self._rows, self._scale = rows, scale
        self.nbytes = rows.nbytes

    def __call__(self, ids: Tensor) -> Tensor:
        """[rows] int64 → [rows, hidden] float32."""
        return self._rows[ids] * self._scale[ids, None]
