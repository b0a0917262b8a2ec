"""Attention by the worker team equals torch's, and a row's result does not depend on the rows next to it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.nn.attention import additive_mask, attend
from model.nn.cpu.row_attention import RowAttention
from model.nn.cpu.row_kernels import Bools, Floats
from model.nn.cpu.target import Isa
from model.nn.cpu.team import Team, shared_team
from tests.model.nn.cpu.random_blocks import supported


def attend_rows(
    query: Floats, keys: Floats, values: Floats, past: int, new: Bools, out: Floats, team: Team | None = None
) -> None:
    """The attention of a model of one layer."""
    team = team or shared_team()
    attention = RowAttention(query, out, 1, len(keys), team)
    attention.attend_to([torch.from_numpy(keys)], [torch.from_numpy(values)], past, new)
    team.run_all(attention.jobs)


def random(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@given(rows=st.integers(1, 14), past=st.integers(0, 40), size=st.sampled_from([8, 20]), seed=st.integers(0, 99))
@settings(deadline=None)
def test_attention_equals_torch_and_rows_are_independent(rows: int, past: int, size: int, seed: int) -> None:
    query, keys = random(seed, rows, 6, size), random(seed + 1, 2, past + rows, size)
    values = random(seed + 2, 2, past + rows, size)
    new = np.random.default_rng(seed).random((rows, rows)) < 0.5
    new |= np.eye(rows, dtype=bool)
    out = random(seed, rows, 6 * size)
    attend_rows(query, keys, values, past, new, out)
    mask = torch.from_numpy(np.concatenate((np.ones((rows, past), bool), new), 1))
    expected = attend(
        *(torch.from_numpy(part) for part in (query, keys, values)), additive_mask(mask, 3, torch.float32)
    )
    torch.testing.assert_close(torch.from_numpy(out), expected, atol=1e-5, rtol=1e-5)
    alone = random(seed, 1, 6 * size)
    for row in range(rows):  # as if the keys it attends to were the whole cache
        attended = mask[row].numpy()
        count = int(attended.sum()) - 1
        own = (np.ascontiguousarray(part[:, attended]) for part in (keys, values))
        attend_rows(query[row : row + 1], *own, count, np.ones((1, 1), bool), alone)
        assert (alone[0] == out[row]).all()


@pytest.mark.parametrize("isa", supported())
def test_every_instruction_set_computes_attention(isa: Isa) -> None:
    query, keys, values = random(0, 7, 6, 24), random(1, 2, 50, 24), random(2, 2, 50, 24)
    new, out, team = np.tril(np.ones((7, 7), bool)), random(3, 7, 144), Team(isa, threads=2)
    try:
        attend_rows(query, keys, values, 43, new, out, team)
    finally:
        team.close()
    mask = torch.from_numpy(np.concatenate((np.ones((7, 43), bool), new), 1))
    expected = attend(*map(torch.from_numpy, (query, keys, values)), additive_mask(mask, 3, torch.float32))
    torch.testing.assert_close(torch.from_numpy(out), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_number_of_threads_does_not_change_a_bit(threads: int) -> None:
    query, keys, values = random(0, 30, 8, 16), random(1, 4, 130, 16), random(2, 4, 130, 16)
    new = np.tril(np.ones((30, 30), bool))
    expected, out = np.empty((2, 30, 128), np.float32)
    attend_rows(query, keys, values, 100, new, expected)
    team = Team(threads=threads)
    try:
        attend_rows(query, keys, values, 100, new, out, team)
    finally:
        team.close()
    assert (out == expected).all()


def test_each_layer_has_its_own_keys_and_values() -> None:
    query, keys, values = random(0, 2, 4, 8), random(1, 3, 2, 9, 8), random(2, 3, 2, 9, 8)
    new, out, alone = np.ones((2, 2), bool), *np.empty((2, 2, 32), np.float32)
    tensors = [torch.from_numpy(layer) for layer in keys], [torch.from_numpy(layer) for layer in values]
    attention = RowAttention(query, out, 3, 2, shared_team())
    attention.attend_to(*tensors, 7, new)
    for layer in (2, 0, 1):
        shared_team().run_all(attention.jobs[layer : layer + 1])
        attend_rows(query, keys[layer], values[layer], 7, new, alone)
        assert (out == alone).all()
