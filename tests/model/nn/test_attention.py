"""Attention masks and attention, each against its definition."""

from __future__ import annotations

import itertools
import math
import sys
from types import SimpleNamespace
from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.nn.attention import (
    additive_mask,
    attend,
    attend_split,
    block_causal_mask,
    causal_mask,
    denoising_mask,
    flash_attn_kernel,
    flash_attn_with_lse,
    static_cache_mask,
    text_mask,
)


@given(rows=st.integers(1, 12), past=st.integers(0, 12))
def test_a_row_attends_to_earlier_tokens_and_itself(rows: int, past: int) -> None:
    mask = causal_mask(rows, past)
    assert mask.tolist() == [[column <= past + row for column in range(past + rows)] for row in range(rows)]


@given(rows=st.integers(1, 9), past=st.integers(0, 30), spare=st.integers(0, 9), seed=st.integers(0, 99))
def test_static_cache_mask_covers_cached_tokens_and_the_given_new_rows(
    rows: int, past: int, spare: int, seed: int
) -> None:
    new = torch.rand(rows, rows, generator=torch.Generator().manual_seed(seed)) < 0.5
    lengths = [past, max(0, past - 3)]
    masks = static_cache_mask(torch.tensor(lengths), new, past + rows + spare)
    for mask, length in zip(masks, lengths, strict=True):
        for row in range(rows):
            for key in range(past + rows + spare):
                expected = key < length or (key - length < rows and bool(new[row, key - length]))
                assert bool(mask[row, key]) == expected


@given(rows=st.integers(1, 20), past=st.integers(0, 20), size=st.integers(1, 7))
def test_a_row_attends_to_its_own_block_and_earlier_blocks(rows: int, past: int, size: int) -> None:
    mask = block_causal_mask(rows, past, size)
    for q in range(rows):
        for k in range(past + rows):
            assert bool(mask[q, k]) == (k // size <= (past + q) // size)
    assert torch.equal(block_causal_mask(rows, past, 1), causal_mask(rows, past))
    assert torch.equal(text_mask("block", rows, past, size), mask)
    assert bool(text_mask("bidirectional", rows, past, size).all())


@given(
    text=st.integers(0, 9),
    past=st.integers(0, 9),
    sizes=st.lists(st.integers(1, 5), max_size=4),
    inside=st.sampled_from(["causal", "bidirectional"]),
    text_attention=st.sampled_from(["causal", "block"]),
)
def test_a_block_attends_to_text_and_earlier_blocks_but_not_to_later_ones(
    text: int,
    past: int,
    sizes: list[int],
    inside: Literal["causal", "bidirectional"],
    text_attention: Literal["causal", "block"],
) -> None:
    own = text_mask(text_attention, text, past, 3)[:, past:]
    mask = denoising_mask(own, sizes, inside)
    block = [-1] * text + [n for n, size in enumerate(sizes) for _ in range(size)]
    for q, k in itertools.product(range(len(block)), repeat=2):
        if block[q] == block[k] == -1:
            expected = bool(own[q, k])
        elif block[q] == block[k]:
            expected = inside == "bidirectional" or k <= q
        else:
            expected = block[k] < block[q]
        assert bool(mask[q, k]) == expected


def test_attention_is_the_softmax_of_unmasked_scores() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(5, 4, 8), torch.randn(2, 9, 8), torch.randn(2, 9, 8)
    mask = causal_mask(5, 4)
    ours = attend(query, key, value, additive_mask(mask, 2, torch.float32)).view(5, 4, 8)
    for row in range(5):
        for head in range(4):
            scores = (key[head // 2] @ query[row, head]) / math.sqrt(8)
            weights = scores.masked_fill(~mask[row], -torch.inf).softmax(0)
            torch.testing.assert_close(ours[row, head], weights @ value[head // 2])


@given(rows=st.integers(1, 9), past=st.integers(1, 40), seed=st.integers(0, 99))
def test_split_attention_equals_attention(rows: int, past: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(rows, 4, 8, generator=generator)
    key, value = (torch.randn(2, past + rows, 8, generator=generator) for _ in "kv")
    new = torch.rand(rows, rows, generator=generator) < 0.5
    new |= torch.eye(rows, dtype=torch.bool)
    mask = torch.cat((torch.ones(rows, past, dtype=torch.bool), new), 1)
    whole = attend(query, key, value, additive_mask(mask, 2, torch.float32))
    torch.testing.assert_close(attend_split(query, key, value, past, new), whole, atol=1e-5, rtol=1e-5)


def _documented_kernel(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, return_attn_probs: bool
) -> tuple[torch.Tensor, torch.Tensor, None]:
    """What flash-attn documents for `flash_attn_func`, in plain matrix multiplications."""
    assert return_attn_probs
    group = query.shape[2] // key.shape[2]
    key, value = key.repeat_interleave(group, 2), value.repeat_interleave(group, 2)
    scores = torch.einsum("nqhd,nkhd->nhqk", query, key) / query.shape[-1] ** 0.5
    return torch.einsum("nhqk,nkhd->nqhd", scores.softmax(-1), value), scores.logsumexp(-1), None


def test_without_flash_attn_torchs_own_flash_kernel_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where flash-attn was built for another torch, which shows when it is imported."""
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    flash_attn_kernel.cache_clear()
    try:
        assert flash_attn_kernel() is None
    finally:
        flash_attn_kernel.cache_clear()


def test_flash_attn_is_called_with_its_documented_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses a fake with the documented shapes; the kernel itself has not been run on a GPU."""
    monkeypatch.setitem(sys.modules, "flash_attn", SimpleNamespace(flash_attn_func=_documented_kernel))
    flash_attn_kernel.cache_clear()
    try:
        kernel = flash_attn_kernel()
    finally:
        flash_attn_kernel.cache_clear()
    assert kernel is _documented_kernel
    query, key, value = torch.randn(3, 4, 8), torch.randn(2, 9, 8), torch.randn(2, 9, 8)
    out, lse = flash_attn_with_lse(kernel, query, key, value)
    torch.testing.assert_close(out.flatten(1), attend(query, key, value, None), atol=1e-5, rtol=1e-5)
    scores = torch.stack([key[head // 2] @ query[:, head].T / 8**0.5 for head in range(4)])  # [heads, seen, rows]
    torch.testing.assert_close(lse, scores.logsumexp(1).T, atol=1e-5, rtol=1e-5)
