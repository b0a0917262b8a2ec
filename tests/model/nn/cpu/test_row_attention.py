"""Attention by the worker team equals torch's, and a row's result does not depend on the rows next to it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.nn.attention import additive_mask, attend
from model.nn.cpu.block_formats import Bools, Floats
from model.nn.cpu.jobs import RowJob, call_table
from model.nn.cpu.row_attention import RowAttention
from model.nn.cpu.row_codegen import STORE, store_kernel
from model.nn.cpu.target import Isa
from model.nn.cpu.team import Team, shared_team
from model.nn.kv_cache import group_size, record_bytes
from tests.model.nn.cpu.random_blocks import supported
from tests.model.nn.int8_records import dequantized


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


def stored(keys: Floats, values: Floats, past: int, capacity: int, team: Team) -> tuple[torch.Tensor, torch.Tensor]:
    """An int8 cache after new keys and values [kv_heads, rows, size] were written at `past`. The rest is zeros."""
    kv_heads, rows, size = keys.shape
    cache = torch.zeros(2, kv_heads, capacity, record_bytes(size), dtype=torch.int8)
    call = call_table(
        STORE, 1, new_keys=keys, new_values=values, keys=cache[0].data_ptr(), values=cache[1].data_ptr(), rows=rows,
        kv_heads=kv_heads, capacity=capacity, past=past,
    )  # fmt: skip
    job = RowJob(store_kernel(team, size), rows, 2 * kv_heads * size, team.threads)
    team.run(job.segments.ctypes.data, call.ctypes.data, job.chunks)
    return cache[0], cache[1]


def attend_to_records(
    query: Floats, keys: torch.Tensor, values: torch.Tensor, past: int, new: Bools, team: Team
) -> Floats:
    """Attention over an int8 cache."""
    rows, heads, size = query.shape
    out = np.empty((rows, heads * size), np.float32)
    attention = RowAttention(query, out, 1, len(keys), team, quantized=True)
    attention.attend_to([keys], [values], past, new)
    team.run_all(attention.jobs)
    return out


@pytest.mark.parametrize("isa", supported())
@pytest.mark.parametrize("size", [8, 20, 64, 128])
def test_an_int8_cache_holds_each_group_with_its_own_scale(isa: Isa, size: int) -> None:
    keys, values, team = random(1, 2, 5, size), 100 * random(2, 2, 5, size), Team(isa, threads=2)
    keys[:, 3, : size // 2] *= 1000
    try:
        cache = stored(keys, values, 7, 16, team)
    finally:
        team.close()
    for records, numbers in zip(cache, map(torch.from_numpy, (keys, values)), strict=True):
        groups = numbers.unflatten(-1, (-1, group_size(size)))
        half_level = (groups.abs().amax(-1, keepdim=True) / 254).expand_as(groups).flatten(-2)
        kept = dequantized(records, size)
        assert ((kept[:, 7:12] - numbers).abs() <= half_level * 1.001).all()
        assert not kept[:, :7].any() and not kept[:, 12:].any()


@pytest.mark.parametrize("isa", supported())
@pytest.mark.parametrize(("size", "rows"), [(8, 3), (20, 1), (64, 1), (64, 9), (128, 4)])
def test_attention_over_an_int8_cache_is_that_over_the_numbers_it_stands_for(isa: Isa, size: int, rows: int) -> None:
    query, past = random(0, rows, 6, size), 37
    new, team = np.tril(np.ones((rows, rows), bool)), Team(isa, threads=2)
    expected = np.empty((rows, 6 * size), np.float32)
    try:
        keys, values = stored(random(1, 2, past + rows, size), random(2, 2, past + rows, size), 0, 50, team)
        out = attend_to_records(query, keys, values, past, new, team)
        floats = [dequantized(part, size).numpy() for part in (keys, values)]
        attend_rows(query, *floats, past, new, expected, team)
        for row in range(rows):
            alone = attend_to_records(query[row : row + 1], keys, values, past + row, np.ones((1, 1), bool), team)
            assert (alone[0] == out[row]).all()
    finally:
        team.close()
    assert (out == expected).all()
