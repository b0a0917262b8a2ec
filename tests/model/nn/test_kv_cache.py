"""The key-value cache holds the tokens that were appended and not truncated."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.checkpoint.checkpoint import DecoderConfig
from model.nn.kv_cache import KeyValueCache, group_size, quantized, record_bytes
from tests.model.nn.int8_records import dequantized

CONFIG = DecoderConfig("llama", "llama", 10, 8, 2, 2, 1, 4, 16, 64, 1e-6)


@given(st.lists(st.one_of(st.lists(st.integers(0, 9), min_size=1, max_size=400), st.integers(0, 500)), max_size=8))
def test_the_cache_holds_exactly_what_was_appended_and_not_truncated(steps: list[list[int] | int]) -> None:
    cache = KeyValueCache(CONFIG, torch.float32, torch.device("cpu"))
    expected: list[int] = []
    for step in steps:
        if isinstance(step, int):
            expected = expected[:step]
            cache.truncate(step)
            continue
        cache.reserve(len(step))
        rows = torch.tensor(step, dtype=torch.float32).view(-1, 1, 1).expand(-1, 1, 4)
        expected = expected + step
        for layer in range(2):
            keys, values = cache.write(layer, rows, -rows)
            assert keys[0, :, 0].tolist() == expected
            assert values[0, :, 3].tolist() == [-token for token in expected]
        cache.commit(step)
    assert cache.tokens == expected


@given(cached=st.lists(st.integers(0, 3), max_size=8), tokens=st.lists(st.integers(0, 3), max_size=8))
def test_truncating_to_the_common_prefix_keeps_the_longest_one(cached: list[int], tokens: list[int]) -> None:
    cache = KeyValueCache(CONFIG, torch.float32, torch.device("cpu"))
    cache.commit(cached)
    length = cache.truncate_to_common_prefix(tokens)
    assert cache.tokens == cached[:length] == tokens[:length]
    assert length in (len(cached), len(tokens)) or cached[length] != tokens[length]


def test_a_cache_grows_to_what_was_stated() -> None:
    cache = KeyValueCache(CONFIG, torch.float32, torch.device("cpu"))
    for length in (1, 512, 513, 4097, 9000):
        cache.reserve(length)
        held = sum(tensor.nbytes for tensor in cache.tensors())
        assert held == cache.bytes_for(length) and length * cache.bytes_per_token <= held
    assert cache.bytes_for(100_000) < 105_000 * cache.bytes_per_token


def test_an_int8_cache_is_copied_and_truncated_like_any_other() -> None:
    config = DecoderConfig("llama", "llama", 10, 128, 2, 2, 1, 64, 16, 64, 1e-6)
    cache = KeyValueCache(config, torch.int8, torch.device("cpu"))
    assert cache.bytes_per_token == 2 * 2 * record_bytes(64) == 2 * 2 * 72
    cache.reserve(6)
    for number, tensor in enumerate(cache.tensors()):
        tensor[:, :6] = torch.arange(6, dtype=torch.int8)[:, None] + 10 * number
    cache.keep([0, 2, 3, 5], [7, 8, 9, 5])
    fork, prefix = cache.fork(), cache.copy_prefix(3)
    cache.truncate(1)
    assert [tensor[0, :4, -1].tolist() for tensor in fork.tensors()] == [
        [0, 2, 3, 5], [10, 12, 13, 15], [20, 22, 23, 25], [30, 32, 33, 35],
    ]  # fmt: skip
    assert prefix.tokens == [7, 8, 9] and [tensor.shape for tensor in prefix.tensors()] == [(1, 3, 72)] * 4


@pytest.mark.parametrize("head_dim", [20, 64])
def test_an_int8_cache_rounds_to_levels_of_their_groups_scale(head_dim: int) -> None:
    values, size = torch.randn(3, head_dim), group_size(head_dim)
    records = quantized(values, head_dim)
    assert records.shape == (3, record_bytes(head_dim))
    levels, scales = records[:, :head_dim], records[:, head_dim:].contiguous().view(torch.float32)
    error = dequantized(records, head_dim) - values
    assert (error.abs() <= 0.51 * scales.repeat_interleave(size, -1)).all()
    assert levels.abs().amax() == 127
