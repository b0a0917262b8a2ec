"""Block-quantized layers compute what the decoder computes layer by layer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from model.checkpoint.checkpoint import open_checkpoint
from model.decode.draft import Alternative, Draft
from model.decode.verify import VerificationStep
from model.nn.adapter import random_adapter
from model.nn.decoder import Decoder
from model.nn.forward_batch import ForwardInput, text_input
from tests.conftest import save_tiny_checkpoint

FAMILIES: list[tuple[str, dict[str, object]]] = [
    ("qwen2", {}),
    ("llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 24}),
    ("qwen3", {"head_dim": 24, "attention_bias": True}),
    ("ministral3", {}),
]


@pytest.mark.parametrize(("family", "settings"), FAMILIES)
@pytest.mark.parametrize("kind", ["text", "prefill", "drafts", "two conversations"])
def test_block_quantized_layers_compute_what_the_decoder_computes_layer_by_layer(
    tmp_path: Path, tiny_tokenizer: Tokenizer, family: str, settings: dict[str, object], kind: str
) -> None:
    """Both use the same weights; they differ only where roundings of the activations fall on different sides."""
    folder = save_tiny_checkpoint(tmp_path, tiny_tokenizer, family, **settings)
    decoder = Decoder(open_checkpoint(folder), torch.device("cpu"), "int8")
    adapter = random_adapter(decoder.config, 4, 3, seed=1)

    def batch() -> list[ForwardInput]:
        caches = [decoder.new_cache() for _ in range(2)]
        for cache, text in zip(caches, ([3, 99, 7, 250, 41], [5, 61]), strict=True):
            decoder.forward(text, cache, logits="none")
        drafts = VerificationStep(
            12, Draft((200, 9)), (Alternative(0, (5, 61, 7)), Alternative(1, (8,))), 2
        ).forward_input(caches[0])
        return {
            "text": [text_input(caches[0], [12, 13, 14], 3)],
            "prefill": [text_input(caches[0], list(range(20)), 1)],
            "drafts": [drafts],
            "two conversations": [drafts, VerificationStep(7, Draft((1,)), (), 1).forward_input(caches[1])],
        }[kind]

    ours = decoder.run(batch(), adapter)
    decoder._block_layers = None
    theirs = decoder.run(batch(), adapter)
    for own, other in zip(ours, theirs, strict=True):
        assert torch.isfinite(own).all()
        assert not len(own) or torch.nn.functional.cosine_similarity(own, other, dim=-1).min() > 0.999


@pytest.mark.parametrize(("family", "settings"), FAMILIES)
def test_int8_keys_and_values_change_the_logits_little(
    tmp_path: Path, tiny_tokenizer: Tokenizer, family: str, settings: dict[str, object]
) -> None:
    folder = save_tiny_checkpoint(tmp_path, tiny_tokenizer, family, **settings)
    exact = Decoder(open_checkpoint(folder), torch.device("cpu"), "int8")
    rounded = Decoder(open_checkpoint(folder), torch.device("cpu"), "int8", "int8")
    assert rounded.new_cache().bytes_per_token < 0.35 * exact.new_cache().bytes_per_token
    logits = []
    for decoder in (exact, rounded):
        cache = decoder.new_cache()
        decoder.forward([3, 99, 7, 250, 41, 12, 5, 61] * 9, cache, logits="none")
        cache.truncate(70)
        logits.append(decoder.forward([8, 9, 10], cache.fork(), logits="all"))
    assert not torch.equal(logits[0], logits[1])
    assert torch.nn.functional.cosine_similarity(logits[0], logits[1], dim=-1).min() > 0.999


def test_int8_keys_and_values_need_int8_weights(tiny_qwen2: Path) -> None:
    with pytest.raises(ValueError, match="need int8 weights"):
        Decoder(open_checkpoint(tiny_qwen2), torch.device("cpu"), "float32", "int8")
