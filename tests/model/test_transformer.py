"""The decoder computes what transformers computes."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import pytest
import torch
from tokenizers import Tokenizer

from model.gguf_file import BadModelFile
from model.transformer import Decoder
from model.weights import open_checkpoint
from tests.conftest import save_tiny

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
    folder = save_tiny(tmp_path, tiny_tokenizer, family, **settings)
    decoder = Decoder(open_checkpoint(folder), CPU, "float32")
    ours = decoder.forward(TOKENS, decoder.new_cache(), logits="all")
    torch.testing.assert_close(ours, reference(folder, TOKENS), atol=1e-4, rtol=1e-4)


def test_reading_in_pieces_gives_the_same_logits_as_reading_at_once(tiny_qwen2: Path) -> None:
    decoder = Decoder(open_checkpoint(tiny_qwen2), CPU, "float32")
    whole = decoder.forward(TOKENS, decoder.new_cache(), logits="all")
    cache = decoder.new_cache()
    pieces = [decoder.forward(piece, cache, logits="all") for piece in (TOKENS[:4], TOKENS[4:5], TOKENS[5:])]
    torch.testing.assert_close(torch.cat(pieces), whole, atol=1e-5, rtol=1e-5)
    last = decoder.forward(TOKENS, decoder.new_cache(), logits="last")
    torch.testing.assert_close(last[0], whole[-1], atol=1e-5, rtol=1e-5)


def test_a_truncated_cache_goes_on_as_if_the_rest_had_never_been_read(tiny_qwen2: Path) -> None:
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


def test_int8_is_refused_off_the_cpu(tiny_qwen2: Path) -> None:
    with pytest.raises(ValueError, match="int8 weights run on the CPU only"):
        Decoder(open_checkpoint(tiny_qwen2), torch.device("meta"), "int8")


def write_gguf(folder: Path, path: Path, tokenizer: Tokenizer, kind: gguf.GGMLQuantizationType) -> Path:
    """The checkpoint of `folder` as llama.cpp's converter would write it."""
    checkpoint = open_checkpoint(folder)
    c = checkpoint.config
    writer = gguf.GGUFWriter(path, c.backbone)
    writer.add_block_count(c.layers)
    writer.add_context_length(c.context_length)
    writer.add_embedding_length(c.hidden)
    writer.add_feed_forward_length(c.intermediate)
    writer.add_head_count(c.heads)
    writer.add_head_count_kv(c.kv_heads)
    writer.add_rope_freq_base(float(json.loads((folder / "config.json").read_text())["rope_parameters"]["rope_theta"]))
    writer.add_layer_norm_rms_eps(c.norm_eps)
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([3 if token.startswith("<|") else 1 for token, _ in vocabulary])
    writer.add_token_merges(["t h", "th e"])
    writer.add_eos_token_id(tokenizer.token_to_id("<|im_end|>"))
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"}
    names |= {"self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up"}
    names |= {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
    names |= {"mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}

    def put(name: str, tensor: torch.Tensor) -> None:
        if c.backbone == "llama" and name.endswith(("attn_q.weight", "attn_k.weight")):
            heads = tensor.shape[0] // c.head_dim  # as LlamaModel.permute in llama.cpp's converter
            tensor = tensor.view(heads, 2, c.head_dim // 2, -1).transpose(1, 2).reshape(tensor.shape)
        data = tensor.numpy()
        if tensor.dim() == 2 and tensor.shape[1] % 32 == 0:
            writer.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, data)

    put("token_embd.weight", checkpoint.tensor("embed_tokens.weight"))
    put("output_norm.weight", checkpoint.tensor("norm.weight"))
    put("output.weight", checkpoint.tensor("lm_head.weight"))
    for layer in range(c.layers):
        for theirs, stored in names.items():
            for part in ("weight", "bias"):
                if checkpoint.has(f"layers.{layer}.{theirs}.{part}"):
                    put(f"blk.{layer}.{stored}.{part}", checkpoint.tensor(f"layers.{layer}.{theirs}.{part}"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("family", ["qwen2", "llama", "qwen3"])
def test_a_gguf_file_computes_what_its_safetensors_compute(
    tmp_path: Path, tiny_tokenizer: Tokenizer, family: str
) -> None:
    folder = save_tiny(tmp_path / "hf", tiny_tokenizer, family)
    path = write_gguf(folder, tmp_path / "tiny.gguf", tiny_tokenizer, gguf.GGMLQuantizationType.F32)
    decoder = Decoder(open_checkpoint(path), CPU, "float32")
    ours = decoder.forward(TOKENS, decoder.new_cache(), logits="all")
    torch.testing.assert_close(ours, reference(folder, TOKENS), atol=1e-4, rtol=1e-4)


def test_a_quantized_gguf_tensor_reads_as_gguf_py_reads_it(
    tmp_path: Path, tiny_tokenizer: Tokenizer, tiny_qwen2: Path
) -> None:
    kind = gguf.GGMLQuantizationType.Q8_0
    path = write_gguf(tiny_qwen2, tmp_path / "tiny.gguf", tiny_tokenizer, kind)
    checkpoint = open_checkpoint(path)
    (stored,) = [t for t in gguf.GGUFReader(path).tensors if t.name == "blk.1.ffn_up.weight"]
    theirs = torch.from_numpy(gguf.quants.dequantize(stored.data, stored.tensor_type))
    torch.testing.assert_close(checkpoint.tensor("layers.1.mlp.up_proj.weight"), theirs)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: b"", "is empty"),
        (lambda data: b"PK\x03\x04" + data[4:], "is not a GGUF file"),
        (lambda data: data[:4] + b"\x09" + data[5:], "is GGUF version 9"),
        (lambda data: data[: len(data) // 2], "cut short"),
        (lambda data: data[:200], "cut short or damaged"),
    ],
)
def test_a_damaged_gguf_is_refused_in_a_sentence(
    tmp_path: Path, tiny_tokenizer: Tokenizer, tiny_qwen2: Path, damage: object, said: str
) -> None:
    whole = write_gguf(tiny_qwen2, tmp_path / "whole.gguf", tiny_tokenizer, gguf.GGMLQuantizationType.F32)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(damage(whole.read_bytes()))  # type: ignore[operator]
    with pytest.raises(BadModelFile, match=said):
        Decoder(open_checkpoint(broken), CPU, "float32")


def test_a_folder_of_an_unknown_family_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(BadModelFile, match=r"is a mamba model; known families are llama, qwen2, qwen3, .*sdar"):
        open_checkpoint(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path: Path, tiny_qwen2: Path) -> None:
    (tmp_path / "config.json").write_text((tiny_qwen2 / "config.json").read_text())
    with pytest.raises(BadModelFile, match=r"neither model\.safetensors nor an index"):
        open_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x10\x00\x00\x00nonsense")
    with pytest.raises(BadModelFile, match="damaged"):
        open_checkpoint(tmp_path)
