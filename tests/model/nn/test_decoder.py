"""The decoder computes the same as transformers."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch
from tokenizers import Tokenizer

from model.checkpoint.checkpoint import open_checkpoint
from model.nn.decoder import Decoder
from tests.conftest import save_tiny_checkpoint
from tests.model.gguf_files import write_gguf

CPU = torch.device("cpu")
TOKENS = [3, 99, 7, 250, 41, 41, 0, 12, 200, 5, 61, 8, 9, 101, 17, 33, 260, 12, 13, 2, 77]
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip


def reference(folder: Path, tokens: list[int]) -> torch.Tensor:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0]


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("qwen2", {}),
        ("qwen2", {"tie_word_embeddings": True}),
        ("llama", {}),
        ("llama", {"attention_bias": True, "head_dim": 24}),
        ("llama", {"rope_parameters": LLAMA3}),
        ("qwen3", {}),
        ("qwen3", {"head_dim": 24, "attention_bias": True}),
        ("ministral3", {}),
        ("ministral3", {"tie_word_embeddings": True}),
    ],
)
def test_logits_match_transformers(
    tmp_path: Path, tiny_tokenizer: Tokenizer, family: str, settings: dict[str, object]
) -> None:
    folder = save_tiny_checkpoint(tmp_path, tiny_tokenizer, family, **settings)
    decoder = Decoder(open_checkpoint(folder), CPU, "float32")
    ours = decoder.forward(TOKENS, decoder.new_cache(), logits="all")
    torch.testing.assert_close(ours, reference(folder, TOKENS), atol=1e-4, rtol=1e-4)


def test_chunked_prefill_gives_the_same_logits_as_one_forward_pass(tiny_qwen2: Path) -> None:
    decoder = Decoder(open_checkpoint(tiny_qwen2), CPU, "float32")
    whole = decoder.forward(TOKENS, decoder.new_cache(), logits="all")
    cache = decoder.new_cache()
    chunks = [decoder.forward(chunk, cache, logits="all") for chunk in (TOKENS[:4], TOKENS[4:5], TOKENS[5:])]
    torch.testing.assert_close(torch.cat(chunks), whole, atol=1e-5, rtol=1e-5)
    last = decoder.forward(TOKENS, decoder.new_cache(), logits="last")
    torch.testing.assert_close(last[0], whole[-1], atol=1e-5, rtol=1e-5)


def test_a_truncated_cache_behaves_as_if_the_rest_had_never_been_read(tiny_qwen2: Path) -> None:
    decoder = Decoder(open_checkpoint(tiny_qwen2), CPU, "float32")
    cache = decoder.new_cache()
    decoder.forward([*TOKENS[:5], 77, 78, 79], cache, logits="none")
    cache.truncate(5)
    ours = decoder.forward(TOKENS[5:], cache, logits="all")
    whole = decoder.forward(TOKENS, decoder.new_cache(), logits="all")
    torch.testing.assert_close(ours, whole[5:], atol=1e-5, rtol=1e-5)


def test_int8_stays_close_to_float(tiny_qwen2: Path) -> None:
    exact = Decoder(open_checkpoint(tiny_qwen2), CPU, "float32")
    rounded = Decoder(open_checkpoint(tiny_qwen2), CPU, "int8")
    a = exact.forward(TOKENS, exact.new_cache(), logits="all")
    b = rounded.forward(TOKENS, rounded.new_cache(), logits="all")
    assert torch.nn.functional.cosine_similarity(a, b, dim=-1).min() > 0.99


def test_int8_is_rejected_on_other_devices_than_the_cpu(tiny_qwen2: Path) -> None:
    with pytest.raises(ValueError, match="int8 weights run on the CPU only"):
        Decoder(open_checkpoint(tiny_qwen2), torch.device("meta"), "int8")


@pytest.mark.parametrize("family", ["qwen2", "llama", "qwen3"])
def test_a_gguf_file_computes_the_same_as_safetensors(tmp_path: Path, tiny_tokenizer: Tokenizer, family: str) -> None:
    folder = save_tiny_checkpoint(tmp_path / "hf", tiny_tokenizer, family)
    path = write_gguf(folder, tmp_path / "tiny.gguf", tiny_tokenizer, gguf.GGMLQuantizationType.F32)
    decoder = Decoder(open_checkpoint(path), CPU, "float32")
    ours = decoder.forward(TOKENS, decoder.new_cache(), logits="all")
    torch.testing.assert_close(ours, reference(folder, TOKENS), atol=1e-4, rtol=1e-4)
