"""Slots are lent to caches, which work like any other cache, and are taken back from those that need them least."""

from __future__ import annotations

import gc

import torch
from hypothesis import given
from hypothesis import strategies as st

from model.checkpoint.checkpoint import DecoderConfig
from model.nn.kv_cache import KeyValueCache
from model.nn.kv_slab import KeyValueSlab, SlotCache, affordable_slots, slot_bytes

CONFIG = DecoderConfig("llama", "llama", 10, 8, 2, 2, 1, 4, 16, 64, 1e-6)
CPU = torch.device("cpu")


def new_slab(num_slots: int, capacity: int = 16) -> KeyValueSlab:
    return KeyValueSlab(CONFIG, torch.float32, CPU, num_slots, capacity)


@torch.inference_mode()
def write(cache: KeyValueCache, tokens: list[int]) -> None:
    """Write tokens whose keys say which they are."""
    cache.reserve(len(tokens))
    for layer in range(2):
        key = torch.tensor(tokens).float()[:, None, None].expand(-1, 1, 4) + layer / 10
        cache.write(layer, key, key + 100)
    cache.commit(tokens)


def holds(cache: KeyValueCache, tokens: list[int]) -> bool:
    if cache.tokens != tokens:
        return False
    expected = torch.tensor(tokens).float()[None, :, None]
    return all(
        torch.equal(part[:, : len(tokens)], (expected + layer / 10 + offset).expand(1, -1, 4))
        for n, part in enumerate(cache.tensors())
        for layer, offset in [(n % 2, 100 * (n // 2))]
    )


@given(
    turns=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6), st.booleans()), max_size=30),
    num_slots=st.integers(1, 3),
)
def test_a_cache_holds_what_was_written_or_nothing(turns: list[tuple[int, int, bool]], num_slots: int) -> None:
    """Whatever others do. A cache in use is never emptied, and one longer than a slot has memory of its own."""
    slab = new_slab(num_slots)
    caches, written = [slab.new_cache() for _ in range(5)], [list[int]() for _ in range(5)]
    for number, (which, count, in_use) in enumerate(turns):
        cache, tokens = caches[which], [number * 10 + n for n in range(count)]
        if not cache.tokens:
            written[which] = []
        write(cache, tokens)
        written[which] += tokens
        cache.in_use = in_use
        for other, expected in zip(caches, written, strict=True):
            assert holds(other, expected) or (not other.in_use and not other.tokens and other.slot is None)
        slots = [other.slot for other in caches if other.slot is not None]
        assert len(slots) == len(set(slots)) <= num_slots
        assert (cache.slot is None) <= (len(cache.tokens) > 16 or len(slots) == num_slots)


def test_a_fork_is_independent_even_if_there_is_one_slot() -> None:
    cache = new_slab(1).new_cache()
    write(cache, [1, 2, 3])
    fork, cache.in_use = cache.fork(), True
    write(fork, [4])
    write(cache, [5])
    assert holds(cache, [1, 2, 3, 5]) and holds(fork, [1, 2, 3, 4])
    assert cache.slot is not None and fork.slot is None


def test_the_slot_of_a_conversation_that_ended_is_free_again() -> None:
    slab = new_slab(1)
    ended = slab.new_cache()
    ended.in_use = True
    write(ended, [1])
    second: SlotCache = slab.new_cache()
    write(second, [2])
    assert second.slot is None
    del ended
    gc.collect()
    write(second, [3])
    assert second.slot == 0 and holds(second, [2, 3])


def test_slots_take_half_of_the_memory_that_is_free() -> None:
    """Sixty-four conversations of 4,224 positions take 3.4 GB with the 0.5B."""
    small = DecoderConfig("qwen2", "qwen2", 151_936, 896, 24, 14, 2, 64, 4864, 32_768, 1e-6)
    size = slot_bytes(small, 2, 4224)
    assert 65 * size == 65 * 24 * 2 * 2 * 64 * 2 * 4224
    assert affordable_slots(size, 20 * 10**9, 64) == 64
    assert affordable_slots(size, 2 * 10**9, 64) == 10**9 // size - 1
    assert affordable_slots(size, 1000, 64) == 1
