"""Block-quantized matrix multiplication against float64, for every format and every instruction set of this machine."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.nn.cpu.block_formats import FORMATS, BlockFormat, PackedMatrix, aligned, pack, packed_bytes
from model.nn.cpu.linear import BlockEmbedding, BlockLinear, Operands
from model.nn.cpu.target import Isa
from model.nn.cpu.team import Team, shared_team
from tests.model.nn.cpu.random_blocks import random_activations, random_blocks, set_sums, supported


@cache
def team(isa: Isa) -> Team:
    return Team(isa, threads=2)


def matrix(form: BlockFormat, outputs: int, inputs: int, seed: int) -> tuple[PackedMatrix, NDArray[np.float64]]:
    """A packed matrix, and its weights [outputs, inputs] float64."""
    stored = random_blocks(form, outputs, inputs, seed)
    packed = aligned(packed_bytes(form, outputs, inputs))
    pack(form, stored, inputs, packed)
    weights = reference(stored, GGMLQuantizationType[form.name]).astype(np.float64)
    return PackedMatrix(form, outputs, inputs, packed), weights


@pytest.mark.parametrize("isa", supported())
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_multiplication_agrees_with_float64(form: BlockFormat, isa: Isa) -> None:
    one, weights = matrix(form, 75, 768, seed=4)
    linear = BlockLinear([one], team=team(isa))
    for rows in (1, 3, 8, 12, 13, 19):
        x, exact = random_activations(rows, 768, seed=rows)
        out = np.full((rows, 75), np.nan, np.float32)
        linear.multiply(Operands(x, out))
        np.testing.assert_allclose(out, exact @ weights.T, atol=3e-6 * np.abs(exact @ weights.T).max())


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_the_largest_weights_and_activations_do_not_overflow(form: BlockFormat) -> None:
    stored = random_blocks(form, 16, 256, seed=5)
    scale_bytes = {"Q6_K": slice(192, 210)}.get(form.name, slice(0, 16 if form.stored_block == 256 else 4))
    blocks = stored.reshape(16, -1, form.stored_bytes)
    kept = blocks[:, :, scale_bytes].copy()
    blocks[:] = 0x7F if form.name == "Q8_0" else 0xFF
    blocks[:, :, scale_bytes] = kept
    weights = reference(stored, GGMLQuantizationType[form.name]).astype(np.float64)
    for isa in supported():
        packed = aligned(packed_bytes(form, 16, 256))
        pack(form, stored, 256, packed)
        for level in (-127, 127):
            x, _ = random_activations(1, 256, seed=6)
            x.levels[:], x.scale[:] = level, 1.0
            set_sums(x)
            out = np.zeros((1, 16), np.float32)
            BlockLinear([PackedMatrix(form, 16, 256, packed)], team=team(isa)).multiply(Operands(x, out))
            np.testing.assert_allclose(out[0], weights.sum(1) * level, rtol=1e-5, atol=1e-3)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 20), st.sampled_from(list(FORMATS)), st.integers(0, 99))
def test_a_rows_result_does_not_depend_on_the_rows_next_to_it(rows: int, name: str, seed: int) -> None:
    one, _ = matrix(FORMATS[name], 33, 512, seed)
    linear = BlockLinear([one])
    x, _ = random_activations(rows, 512, seed)
    together = np.zeros((rows, 33), np.float32)
    linear.multiply(Operands(x, together))
    for row in range(rows):
        alone, _ = random_activations(1, 512, seed)
        for own, all_rows in zip(alone.arrays, x.arrays, strict=True):
            own[:] = all_rows[:, row : row + 1]
        out = np.zeros((1, 33), np.float32)
        linear.multiply(Operands(alone, out))
        assert (out[0] == together[row]).all()


def test_matrices_of_different_formats_are_multiplied_side_by_side() -> None:
    parts = [
        matrix(FORMATS[name], outputs, 512, seed=7) for name, outputs in (("Q4_K", 75), ("Q5_0", 33), ("Q8_0", 2000))
    ]
    linear = BlockLinear([part for part, _ in parts])
    x, exact = random_activations(9, 512, seed=8)
    out = np.full((9, linear.out_features), np.nan, np.float32)
    linear.multiply(Operands(x, out))
    expected = exact @ np.concatenate([weights for _, weights in parts]).T
    np.testing.assert_allclose(out, expected, atol=3e-6 * np.abs(expected).max())


def test_a_linear_layer_takes_floats_and_adds_its_bias() -> None:
    one, weights = matrix(FORMATS["Q4_K"], 40, 512, seed=9)
    bias, x = torch.randn(40), torch.randn(5, 512)
    expected = x.double() @ torch.from_numpy(weights).T + bias
    error = (BlockLinear([one], bias)(x) - expected).abs().max() / expected.abs().max()
    assert error < 0.02  # activations are rounded to 8 bits


def test_embeddings_are_the_rows_of_the_table() -> None:
    form = FORMATS["Q5_0"]
    stored = random_blocks(form, 30, 96, seed=10)
    ids = torch.tensor([3, 29, 3])
    rows = reference(stored, GGMLQuantizationType.Q5_0)[ids.numpy()]
    np.testing.assert_allclose(BlockEmbedding(form, stored)(ids).numpy(), rows, rtol=1e-6)


def test_the_process_has_one_team() -> None:
    assert shared_team() is shared_team()
