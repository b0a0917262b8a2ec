"""Block formats: nothing is rounded when GGUF's blocks are unpacked and repacked."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize as reference

from model.nn.cpu.block_formats import FORMATS, BlockFormat, dequantize, pack, packed_bytes
from tests.model.nn.cpu.random_blocks import random_blocks


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_blocks_are_dequantized_as_ggml_does(form: BlockFormat) -> None:
    stored = random_blocks(form, 7, 512, seed=1)
    exact = reference(stored, GGMLQuantizationType[form.name])
    np.testing.assert_allclose(dequantize(form, stored), exact, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_packed_matrix_is_as_large_as_announced_and_its_size_is_that_of_the_blocks(form: BlockFormat) -> None:
    outputs, inputs = 64, 1024
    stored = random_blocks(form, outputs, inputs, seed=2)
    packed = np.full(packed_bytes(form, outputs, inputs), 0xAA, np.uint8)
    pack(form, stored, inputs, packed)
    assert packed.nbytes <= 1.04 * stored.nbytes
    assert form.record_bytes % 64 == 0


def test_rows_and_inputs_that_fill_no_whole_group_or_record_are_padded_with_zeros() -> None:
    form = FORMATS["Q8_0"]
    stored = random_blocks(form, 5, 96, seed=3)  # 3 blocks in records of 2, 5 rows in a group of 16
    packed = np.full(packed_bytes(form, 5, 96), 0xAA, np.uint8)
    pack(form, stored, 96, packed)
    scales = packed.reshape(2, form.record_bytes)[:, :64].view(np.float16).reshape(4, 16)
    assert (scales[3] == 0).all()
    assert (scales[:, 5:] == 0).all()
    assert (scales[:3, :5] != 0).all()
