"""One forward pass over the rows of several conversations: outputs, independence of each other, and devices.

torch's `meta` device stands for a GPU here. It computes only shapes, refuses a sum with a tensor of another device as a
GPU does, and has no values to read, so a forward pass that waits for the host fails. What a GPU computes is not tested.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import model.nn.decoder
from model.checkpoint.checkpoint import open_checkpoint
from model.decode.draft import Alternative, Draft
from model.decode.verify import VerificationStep
from model.nn.adapter import Adapter, random_adapter
from model.nn.decoder import Decoder, Precision
from model.nn.forward_batch import ForwardInput, prefill, text_input
from model.nn.kv_cache import KeyValueCache
from model.nn.linear import cpu_kernels_installed

CPU, META = torch.device("cpu"), torch.device("meta")
TOKENS = [3, 99, 7, 250, 41, 41]
OTHER_TOKENS = [5, 61, 8, 9, 101, 17, 33]
INT8 = pytest.param("int8", marks=pytest.mark.skipif(not cpu_kernels_installed(), reason="int8 does not run here"))


@pytest.mark.parametrize("precision", ["float32", INT8])
def test_logits_are_computed_from_the_hidden_states(tiny_qwen2: Path, precision: Precision) -> None:
    decoder = Decoder(open_checkpoint(tiny_qwen2), CPU, precision)
    (logits,) = decoder.run([text_input(decoder.new_cache(), TOKENS, 2)])
    (states,) = decoder.run([text_input(decoder.new_cache(), TOKENS, 2, return_hidden_states=True)])
    assert states.shape == (2, decoder.config.hidden)
    assert torch.equal(decoder.head(states), logits)


@pytest.mark.parametrize("precision", [INT8])
def test_neither_hidden_states_nor_logits_depend_on_other_conversations(tiny_qwen2: Path, precision: Precision) -> None:
    decoder = Decoder(open_checkpoint(tiny_qwen2), CPU, precision)

    def inputs() -> tuple[ForwardInput, ForwardInput, ForwardInput]:
        return (
            text_input(decoder.new_cache(), TOKENS, 1, return_hidden_states=True),
            text_input(decoder.new_cache(), OTHER_TOKENS, 2),
            text_input(decoder.new_cache(), OTHER_TOKENS[::-1], 0),
        )

    (states,), (logits,), (prefill,) = (decoder.run([rows]) for rows in inputs())
    together = decoder.run(inputs())
    assert torch.equal(together[0], states)
    assert torch.equal(together[1], logits)
    assert together[2].shape == prefill.shape == (0, decoder.config.vocab_size)


@pytest.fixture(scope="module")
def meta_decoder(tiny_qwen2: Path) -> Decoder:
    return Decoder(open_checkpoint(tiny_qwen2), META, "bfloat16")


@pytest.fixture(scope="module")
def meta_adapter(meta_decoder: Decoder) -> Adapter:
    return random_adapter(meta_decoder.config, 4, 3, seed=0).to(META, torch.bfloat16)


@pytest.mark.parametrize("split", [False, True])
def test_a_forward_pass_stays_on_its_device(
    meta_decoder: Decoder, meta_adapter: Adapter, split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model.nn.decoder, "supports_attend_split", lambda *kind: split)

    def input_after(count: int, step: VerificationStep | None, *, return_hidden_states: bool = False) -> ForwardInput:
        cache = meta_decoder.new_cache()
        meta_decoder.forward(list(range(count)), cache, logits="none")
        if step is not None:
            return step.forward_input(cache)
        return text_input(cache, [1, 2, 3], 2, return_hidden_states=return_hidden_states)

    batch = [
        input_after(9, None),
        input_after(5, VerificationStep(7, Draft((1, 2)), (Alternative(0, (5, 6)),), 3)),
        input_after(4, None, return_hidden_states=True),
        input_after(3, VerificationStep(7, Draft((1,)), (), 1)),  # its noise rows are not adjacent to the others
    ]
    outputs = meta_decoder.run(batch, meta_adapter)
    assert [tuple(output.shape) for output in outputs] == [
        (2, meta_decoder.config.vocab_size),
        (3 + 2 + 9, meta_decoder.config.vocab_size),
        (2, meta_decoder.config.hidden),
        (4, meta_decoder.config.vocab_size),
    ]
    assert all(output.device == META for output in outputs)
    logits_dtype, states_dtype = torch.float32, torch.bfloat16
    assert [output.dtype for output in outputs] == [logits_dtype, logits_dtype, states_dtype, logits_dtype]


def test_kept_keys_and_values_are_moved_on_their_device(meta_decoder: Decoder, meta_adapter: Adapter) -> None:
    cache = meta_decoder.new_cache()
    meta_decoder.forward([1, 2, 3], cache, logits="none")
    meta_decoder.run(
        [VerificationStep(7, Draft((1, 2)), (Alternative(0, (5,)),), 2).forward_input(cache)], meta_adapter
    )
    cache.keep((0, 3), [7, 5])
    assert len(cache.fork().tokens) == 5


@pytest.mark.parametrize(("device", "sizes"), [("cpu", [64] * 18 + [48]), ("cuda:0", [1024, 176])])
def test_a_gpu_reads_prompts_in_larger_chunks(meta_decoder: Decoder, device: str, sizes: list[int]) -> None:
    """The cache holds nothing yet, so no GPU is needed."""
    cache = KeyValueCache(meta_decoder.config, torch.bfloat16, torch.device(device))
    assert [len(chunk.tokens) for chunk in prefill(cache, list(range(1200)))] == sizes
