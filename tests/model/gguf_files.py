"""Writes tiny GGUF files."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import torch
from tokenizers import Tokenizer

from model.checkpoint.checkpoint import open_checkpoint


def write_gguf(
    folder: Path, path: Path, tokenizer: Tokenizer, kind: gguf.GGMLQuantizationType, tensors_per_part: int = 0
) -> Path:
    """Write the checkpoint in `folder` as llama.cpp's converter does; return `path`, or the first part's path."""
    checkpoint = open_checkpoint(folder)
    c = checkpoint.config
    writer = gguf.GGUFWriter(path, c.backbone, split_max_tensors=tensors_per_part)
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
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_eos_token_id(tokenizer.token_to_id("<|im_end|>"))
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"}
    names |= {"self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up"}
    names |= {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
    names |= {"mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}

    def add(name: str, tensor: torch.Tensor) -> None:
        if c.backbone == "llama" and name.endswith(("attn_q.weight", "attn_k.weight")):
            heads = tensor.shape[0] // c.head_dim  # as LlamaModel.permute in llama.cpp's converter
            tensor = tensor.view(heads, 2, c.head_dim // 2, -1).transpose(1, 2).reshape(tensor.shape)
        data = tensor.numpy()
        if tensor.dim() == 2 and tensor.shape[1] % 32 == 0:
            writer.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, data)

    add("token_embd.weight", checkpoint.tensor("embed_tokens.weight"))
    add("output_norm.weight", checkpoint.tensor("norm.weight"))
    add("output.weight", checkpoint.tensor("lm_head.weight"))
    for layer in range(c.layers):
        for name, gguf_name in names.items():
            for part in ("weight", "bias"):
                if checkpoint.has_tensor(f"layers.{layer}.{name}.{part}"):
                    add(f"blk.{layer}.{gguf_name}.{part}", checkpoint.tensor(f"layers.{layer}.{name}.{part}"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return next(path.parent.glob(f"{path.stem}-00001-of-*.gguf")) if tensors_per_part else path
