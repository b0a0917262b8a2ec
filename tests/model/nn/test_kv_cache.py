"""The key-value cache holds the tokens that were appended and not truncated."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from model.checkpoint.checkpoint import DecoderConfig
from model.nn.kv_cache import KeyValueCache

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
