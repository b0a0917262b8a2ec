"""Prompts of several conversations are read by one attention, which computes what one after the other does."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("triton", "3.9", "Triton before 3.9 does not work with numpy 2.4: pip install -U triton")

from lab.benchmarks.crowd_simulation import EAGER_KERNELS, LOOPED_KERNELS
from lab.benchmarks.gpu_acceptance.counting import CountedOperations
from lab.benchmarks.gpu_acceptance.random_models import QWEN_05B, TINY, random_model
from lab.benchmarks.gpu_acceptance.recording import META, meta_decoder
from model.nn.attention import additive_mask, attend, causal_mask, text_mask
from model.nn.decoder import Decoder
from model.nn.forward_batch import ForwardInput, text_input
from model.nn.gpu import ragged as selection
from model.nn.gpu.ragged import FlashAttention, LoopedAttention, difference, flash_attn_varlen, select_ragged_attention
from model.nn.gpu.triton_ragged import TritonAttention
from model.nn.kv_slab import KeyValueSlab
from model.nn.ragged import RaggedAttention, RaggedRows

# The interpreter divides by zero in rows that are not stored.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

CPU = torch.device("cpu")


class DocumentedVarlen:
    """flash-attn's `flash_attn_varlen_func` as its source describes it (flash_attn_interface.py, flash_api.cpp): what
    it demands of its arguments, and causal attention aligned to the last key."""

    calls = 0

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int,
        max_seqlen_k: int, *, causal: bool, block_table: Tensor,
    ) -> Tensor:  # fmt: skip
        DocumentedVarlen.calls += 1
        batch, page = len(cu_seqlens_q) - 1, k.shape[1]
        assert causal and page % 256 == 0 and k.shape == v.shape == (len(k), page, k.shape[2], q.shape[2])
        assert q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
        for starts in (cu_seqlens_q, cu_seqlens_k):
            assert starts.dtype == torch.int32 and starts.is_contiguous() and len(starts) == batch + 1
        assert block_table.dtype == torch.int32 and block_table.stride(-1) == 1 and len(block_table) == batch
        assert max_seqlen_k <= block_table.shape[1] * page
        out = torch.empty_like(q)
        for n in range(batch):
            rows, keys = slice(*cu_seqlens_q[n : n + 2].tolist()), int(cu_seqlens_k[n + 1] - cu_seqlens_k[n])
            count = rows.stop - rows.start
            assert count <= max_seqlen_q and keys <= max_seqlen_k
            own = [part[block_table[n].long()].flatten(0, 1)[:keys].transpose(0, 1) for part in (k, v)]
            mask = additive_mask(causal_mask(count, keys - count), q.shape[1] // k.shape[2], q.dtype)
            out[rows] = attend(q[rows], own[0], own[1], mask).view(count, *q.shape[1:])
        return out


@pytest.fixture
def flash() -> FlashAttention:
    return FlashAttention(DocumentedVarlen(), LoopedAttention())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["triton", "flash"])
def test_each_implementation_computes_what_the_loop_does(
    kind: str, dtype: torch.dtype, flash: FlashAttention, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the check that a server makes when it starts, over the border of a tile: it accepts them."""
    attention = TritonAttention() if kind == "triton" else flash
    conversations = ((1, 70), (18, 0), (9, 64), (66, 60))
    assert difference(attention, TINY, dtype, CPU, conversations) < (1e-5 if dtype == torch.float32 else 1.2e-2)


@settings(max_examples=8, deadline=None)
@given(data=st.data(), seed=st.integers(0, 1000))
def test_random_ragged_shapes_give_what_the_loop_gives(data: st.DataObject, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    lengths = data.draw(st.lists(st.tuples(st.integers(1, 70), st.integers(0, 100)), min_size=1, max_size=3))
    heads, kv_heads, size = data.draw(st.sampled_from([(4, 2, 16), (3, 1, 24), (2, 2, 32)]))
    counts, past = zip(*lengths, strict=True)
    keys_values = torch.randn(2, 1, len(counts) + 1, kv_heads, 256, size, generator=draw)
    query = torch.randn(sum(counts), heads, size, generator=draw)
    masks = tuple(
        None if data.draw(st.booleans()) else (torch.rand(n, n, generator=draw) < 0.3) | torch.eye(n, dtype=torch.bool)
        for n in counts
    )
    slots = tuple(torch.randperm(len(counts) + 1, generator=draw).tolist()[: len(counts)])
    rows = RaggedRows(keys_values, counts, past, slots, masks)
    expected = LoopedAttention()(query, *keys_values[:, 0], rows)
    torch.testing.assert_close(TritonAttention()(query, *keys_values[:, 0], rows), expected, atol=2e-5, rtol=2e-5)
    calls = DocumentedVarlen.calls
    found = FlashAttention(DocumentedVarlen(), LoopedAttention())(query, *keys_values[:, 0], rows)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5)
    assert (DocumentedVarlen.calls > calls) == rows.is_causal


def _decoder(attention: RaggedAttention | None) -> tuple[Decoder, KeyValueSlab]:
    decoder = random_model(TINY, CPU, "float32").decoder
    decoder.ragged_attention = attention
    return decoder, KeyValueSlab(TINY, torch.float32, CPU, 6, 320)


def _batch(decoder: Decoder, slab: KeyValueSlab, kind: str = "causal", count: int = 3) -> list[ForwardInput]:
    batch = []
    for n in range(count):
        cache = slab.new_cache()
        if n % 2:
            decoder.forward(list(range(20 * n)), cache, logits="none")
        rows = 5 + 10 * n
        inputs = text_input(cache, list(range(100, 100 + rows)), 2)
        mask = text_mask("block", rows, 0, 4) if kind == "block" and n == 2 else inputs.attention_mask
        batch.append(ForwardInput(cache, inputs.tokens, inputs.positions, mask, inputs.noise, 2))
    return batch


@pytest.mark.parametrize("kind", ["causal", "block"])
def test_a_forward_pass_gives_the_same_logits_and_cache(kind: str) -> None:
    found = []
    for attention in (None, TritonAttention()):
        decoder, slab = _decoder(attention)
        logits = decoder.run(_batch(decoder, slab, kind))
        found.append((torch.cat(logits), slab.keys_values))
    torch.testing.assert_close(found[1][0], found[0][0], atol=2e-4, rtol=1e-3)
    torch.testing.assert_close(found[1][1], found[0][1], atol=2e-5, rtol=1e-3)


def test_conversations_without_a_slot_are_read_one_after_the_other() -> None:
    """As while all slots belong to others."""
    decoder, slab = _decoder(lambda *_: pytest.fail("a conversation has no slot"))  # type: ignore[arg-type]
    inputs = text_input(slab.new_cache(), [1, 2, 3], 1)
    alone = text_input(decoder.new_cache(), [4, 5], 1)
    assert [tuple(part.shape) for part in decoder.run([inputs, alone])] == [(1, 640), (1, 640)]


class _Launched:
    """Stands for one kernel on torch's `meta` device."""

    launches = 0

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, rows: RaggedRows) -> Tensor:
        self.launches += 1
        return query.new_empty(len(query), query.shape[1] * query.shape[2])


def _kernels(layers: int, conversations: int, ragged: bool) -> int:
    """Kernels of a forward pass that reads prompts after earlier texts, as on a GPU."""
    config = replace(QWEN_05B, layers=layers, vocab_size=640)
    decoder, slab = meta_decoder(config, torch.bfloat16), KeyValueSlab(config, torch.bfloat16, META, 8, 320)
    batch = []
    for _ in range(conversations):
        cache = slab.new_cache()
        decoder.forward(list(range(20)), cache, logits="none")
        batch.append(text_input(cache, list(range(9)), 0))
    launched = _Launched()
    decoder.ragged_attention = launched if ragged else None
    with torch.inference_mode(), CountedOperations() as others:
        decoder.run(batch)
    return others.count + launched.launches


def test_the_kernels_of_a_layer_do_not_grow_with_the_conversations_that_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("model.nn.decoder.supports_attend_split", lambda *kind: True)
    looped, ragged = ([_kernels(3, n, how) - _kernels(2, n, how) for n in (1, 2, 4)] for how in (False, True))
    assert looped[2] - looped[1] == 2 * LOOPED_KERNELS and looped[0] > EAGER_KERNELS
    assert ragged == [EAGER_KERNELS] * 3


class Wrong:
    """A mask is dropped, a slot is another one's, or nothing is a number."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, rows: RaggedRows) -> Tensor:
        counts, past, slots, masks = rows.counts, rows.past, rows.slots, rows.masks
        if self.kind == "mask":
            masks = (None,) * len(masks)
        elif self.kind == "slots":
            slots = slots[::-1]
        elif self.kind == "past":
            past = tuple(max(0, n - 1) for n in past)
        elif self.kind == "raises":
            raise RuntimeError("ptxas failed\nwith a long log")
        out = LoopedAttention()(query, keys, values, RaggedRows(rows.keys_values, counts, past, slots, masks))
        return out * torch.nan if self.kind == "nan" else out


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check runs on a CPU as it would on a GPU."""
    monkeypatch.setattr(selection, "is_ampere_or_newer", lambda device: True)
    monkeypatch.delenv("REJOINDER_TRITON", raising=False)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("kind", ["mask", "slots", "past", "nan", "raises"])
def test_a_wrong_implementation_is_not_used(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(selection, "_triton_attention", lambda: Wrong(kind))
    monkeypatch.setattr(selection, "flash_attn_varlen", lambda: None)
    with caplog.at_level(logging.WARNING, "rejoinder.model"):
        assert select_ragged_attention(QWEN_05B, torch.bfloat16, CPU) is None
    assert "Triton's attention cannot read several prompts at once here" in caplog.text
    assert "with a long log" not in caplog.text


@pytest.mark.usefixtures("gpu")
def test_flash_attn_is_used_where_it_is_installed_and_the_weights_are_bfloat16(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    twin = LoopedAttention()
    monkeypatch.setattr(selection, "_triton_attention", lambda: twin)
    flash_attn_varlen.cache_clear()
    monkeypatch.setitem(sys.modules, "flash_attn", SimpleNamespace(flash_attn_varlen_func=DocumentedVarlen()))
    try:
        chosen = select_ragged_attention(TINY, torch.bfloat16, CPU)
        assert isinstance(chosen, FlashAttention) and chosen.otherwise is twin
        assert select_ragged_attention(TINY, torch.float32, CPU) is twin
        monkeypatch.setattr(selection, "flash_attn_varlen", lambda: Wrong("raises"))
        assert select_ragged_attention(TINY, torch.bfloat16, CPU) is twin
    finally:
        flash_attn_varlen.cache_clear()


def test_a_cpu_and_a_switched_off_triton_have_none(monkeypatch: pytest.MonkeyPatch, request: Any) -> None:
    assert select_ragged_attention(TINY, torch.float32, CPU) is None
    request.getfixturevalue("gpu")
    monkeypatch.setenv("REJOINDER_TRITON", "0")
    assert select_ragged_attention(TINY, torch.float32, CPU) is None


def test_a_text_beyond_the_last_whole_page_of_a_slot_is_left_to_the_other(flash: FlashAttention) -> None:
    keys_values = torch.randn(2, 1, 2, 2, 320, 16)
    query = torch.randn(8, 4, 16)
    for past, used in ((200, True), (290, False)):
        calls = DocumentedVarlen.calls
        rows = RaggedRows(keys_values, (8,), (past,), (0,), (None,))
        expected = LoopedAttention()(query, *keys_values[:, 0], rows)
        torch.testing.assert_close(flash(query, *keys_values[:, 0], rows), expected)
        assert (DocumentedVarlen.calls > calls) == used
