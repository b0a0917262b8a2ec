"""Repacked weights are those of the file, bit for bit, and take no more bytes."""

from __future__ import annotations

import pytest
import torch

from model.nn.cpu.block_formats import FORMATS, dequantize
from model.nn.gpu.block_matrix import BlockMatrix, BlockWeight
from tests.model.nn.cpu.random_blocks import random_blocks

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", FORMATS)
def test_expanded_weights_are_what_the_file_stores(name: str) -> None:
    form = FORMATS[name]
    inputs = 512 if form.stored_block == 256 else 416  # that many end within a superblock, and within a pair
    stored = random_blocks(form, 24, inputs, 0)
    matrix = BlockMatrix.of(form, stored, inputs, CPU)
    expected = torch.from_numpy(dequantize(form, stored))
    assert torch.equal(matrix.expanded(0, 24), expected)
    assert torch.equal(matrix.expanded(5, 9), expected[5:9])
    whole = BlockWeight((matrix, matrix), torch.float32)
    assert len(whole) == 48 and torch.equal(whole.expanded(), torch.cat((expected, expected)))
    assert torch.equal(whole.rows([7, 0]), expected[[7, 0]])
    if form.stored_block == 256:
        assert matrix.nbytes == stored.nbytes
    else:
        assert matrix.nbytes <= 1.2 * stored.nbytes  # filled up: a large matrix has whole superblocks
