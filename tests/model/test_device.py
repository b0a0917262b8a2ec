"""On a device that is not the CPU nothing of a pass lies on the CPU, and nothing is read back in the middle of one.

torch's `meta` device computes shapes only: it refuses what a GPU refuses, a sum with a tensor of another device, and
has no values to read, so a pass that waits for the host fails. What a GPU computes is not tested by this.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

import model.transformer
from model.adapter import Adapter, random_adapter
from model.decode.draft import Draft
from model.decode.verify import Pass
from model.stride import Strider
from model.transformer import Decoder, Rows, text_rows
from model.weights import open_checkpoint
from tests.model.families import save_family

ELSEWHERE = torch.device("meta")


@pytest.fixture(scope="module")
def decoder(tiny_qwen2: Path) -> Decoder:
    return Decoder(open_checkpoint(tiny_qwen2), ELSEWHERE, "bfloat16")


@pytest.fixture(scope="module")
def adapter(decoder: Decoder) -> Adapter:
    return random_adapter(decoder.config, 4, 3, seed=0).to(ELSEWHERE, torch.bfloat16)


def behind(decoder: Decoder, count: int, ahead: Pass | None, *, states: bool = False) -> Rows:
    cache = decoder.new_cache()
    decoder.forward(list(range(count)), cache, logits="none")
    return ahead.rows(cache) if ahead is not None else text_rows(cache, [1, 2, 3], 2, states=states)


@pytest.mark.parametrize("split", [False, True])
def test_a_pass_stays_on_its_device(
    decoder: Decoder, adapter: Adapter, split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model.transformer, "splits", lambda query: split)
    drafts = Pass(7, Draft((1, 2)), (5, 6), 3)
    batch = [behind(decoder, 9, None), behind(decoder, 5, drafts), behind(decoder, 4, None, states=True)]
    batch.append(behind(decoder, 3, Pass(7, Draft((1,)), (), 1)))  # its noise rows do not stand beside the others'
    logits = decoder.run(batch, adapter)
    assert [tuple(part.shape) for part in logits] == [
        (2, decoder.config.vocab_size),
        (3 + 2 + 9, decoder.config.vocab_size),
        (2, decoder.config.hidden),
        (4, decoder.config.vocab_size),
    ]
    assert all(part.device == ELSEWHERE and part.dtype == torch.bfloat16 for part in logits)


def test_what_is_kept_of_a_pass_is_moved_where_it_lies(decoder: Decoder, adapter: Adapter) -> None:
    cache = decoder.new_cache()
    decoder.forward([1, 2, 3], cache, logits="none")
    decoder.run([Pass(7, Draft((1, 2)), (5,), 2).rows(cache)], adapter)
    cache.keep((0, 3), [7, 5])
    assert len(cache.fork().tokens) == 5


@pytest.mark.parametrize(("slots", "copies"), [(0, 0), (0, 8), (1, 0), (4, 8)])
def test_a_stride_needs_no_word_from_the_host(decoder: Decoder, adapter: Adapter, slots: int, copies: int) -> None:
    """What a CUDA graph captures may not wait for the host."""
    strider = Strider(decoder, adapter if slots else None, slots, 200, copies)
    strider._run(256)
    assert strider._state.said.shape == (2 + max(slots, copies) + 1 + 2 * slots,)


def test_a_family_with_a_mask_of_its_own_strides_alike(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    folder, _ = save_family(tmp_path, tiny_tokenizer, "i-dlm")
    own = Decoder(open_checkpoint(folder), ELSEWHERE, "bfloat16")
    strider = Strider(own, None, 2, 200)
    strider._run(256)
    assert strider._state.said.shape == (2 + 3 + 4,)
