"""Rows quantized to int8, as adapters are stored."""

from __future__ import annotations

import torch

from model.nn.linear import quantize_rows


def test_quantized_rows_are_within_half_a_level() -> None:
    torch.manual_seed(1)
    weight = torch.randn(48, 64) * torch.logspace(-3, 3, 48)[:, None]
    rows, scale = quantize_rows(weight)
    assert rows.dtype == torch.int8
    assert rows.abs().amax(dim=1).tolist() == [127] * 48
    assert ((rows * scale[:, None] - weight).abs() <= scale[:, None] * 0.501).all()


def test_a_row_of_zeros_stays_zero() -> None:
    rows, scale = quantize_rows(torch.zeros(2, 8))
    assert not (rows * scale[:, None]).any()
