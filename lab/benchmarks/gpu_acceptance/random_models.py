"""Models of random weights: tiny ones, and ones of the shapes of real models. Nothing needs to be downloaded, and a
forward pass takes as long as with real weights."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from model.checkpoint.architectures import DiffusionConfig
from model.checkpoint.chat_template import CHATML, ChatTemplate
from model.checkpoint.checkpoint import DecoderConfig
from model.checkpoint.rope import RopeParameters, rope_from_config
from model.checkpoint.tokenizer import TextTokenizer
from model.engine.loader import LoadedModel
from model.nn.adapter import projection_shapes, random_adapter
from model.nn.decoder import Decoder, Precision

TINY = DecoderConfig("qwen2", "qwen2", 640, 64, 3, 4, 2, 16, 112, 1024, 1e-6)
QWEN_05B = DecoderConfig("qwen2", "qwen2", 151_936, 896, 24, 14, 2, 64, 4864, 32_768, 1e-6)
QWEN_15B = DecoderConfig("qwen2", "qwen2", 151_936, 1536, 28, 12, 2, 128, 8960, 32_768, 1e-6)
"""The shapes of Qwen2.5."""

TINY_BLOCKS = replace(
    TINY,
    family="sdar",
    backbone="qwen3",
    diffusion=DiffusionConfig(mask_token=639, block_size=4, text_attention="block", aligned=True),
)
"""A tiny model of a block diffusion family."""

_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|MASK|>")
"""The last tokens of the vocabulary."""

_THETA = 1e6
_CPU = torch.device("cpu")


class RandomCheckpoint:
    """Random weights, as a `Checkpoint`. Their scale keeps the text varied: it does not repeat itself.

    Args:
        source: device that they are generated on. The same device and shape give the same weights.
    """

    def __init__(self, config: DecoderConfig, source: torch.device) -> None:
        self.config, self._source = config, source
        self.path = Path("random")

    def has_tensor(self, name: str) -> bool:
        return name in self.shapes()

    def tensor(self, name: str) -> Tensor:
        shape = self.shapes()[name]
        generator = torch.Generator(self._source).manual_seed(zlib.crc32(name.encode()))
        values = torch.randn(shape, generator=generator, device=self._source)
        if len(shape) == 1:
            return values * 0.1 + float("norm" in name)
        return values * (1.6 / shape[1] ** 0.5)

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every tensor."""
        return _shapes(self.config)

    def blocks(self, name: str) -> None:
        return None

    def rope(self, scaling: Mapping[str, Any] | None = None) -> RopeParameters:
        return rope_from_config(scaling or {}, _THETA, self.config.head_dim, self.path)

    def tokenizer(self) -> TextTokenizer:
        return TextTokenizer(_tokenizer(self.config.vocab_size))

    def chat_template(self) -> None:
        return None

    def template_tokens(self) -> dict[str, str]:
        return {}

    def stop_tokens(self) -> frozenset[int]:
        return frozenset()  # every response has the length that was asked for

    def save(self, folder: Path) -> Path:
        """Save the checkpoint to a folder, as transformers would."""
        c = self.config
        settings = {
            "architectures": ["Qwen2ForCausalLM"], "vocab_size": c.vocab_size, "hidden_size": c.hidden,
            "num_hidden_layers": c.layers, "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads,
            "head_dim": c.head_dim, "intermediate_size": c.intermediate, "max_position_embeddings": c.context_length,
            "rms_norm_eps": c.norm_eps, "rope_theta": _THETA,
        }  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
        save_file({f"model.{name}": self.tensor(name).cpu() for name in self.shapes()}, folder / "model.safetensors")
        _tokenizer(c.vocab_size).save(str(folder / "tokenizer.json"))
        return folder


def random_model(
    config: DecoderConfig,
    device: torch.device,
    precision: Precision,
    num_drafts: int = 0,
    *,
    source: torch.device = _CPU,
) -> LoadedModel:
    """A model with random weights on a device.

    Args:
        num_drafts: drafts of its adapter; 0 for no adapter.
        source: device that the weights are generated on: the CPU for the same weights on every machine, the GPU for
            large ones.
    """
    checkpoint = RandomCheckpoint(config, source)
    decoder = Decoder(checkpoint, device, precision)
    tokenizer = checkpoint.tokenizer()
    if decoder.mask_token is not None:
        tokenizer.add_control_token(decoder.mask_token)
    adapter = None
    if num_drafts:
        rank = 32 if config.hidden > 64 else 4
        adapter = random_adapter(config, rank, num_drafts, seed=1).to(device, decoder.dtype)
    return LoadedModel(decoder, tokenizer, ChatTemplate(CHATML, tokenizer), checkpoint.stop_tokens(), adapter)


@cache
def _shapes(config: DecoderConfig) -> Mapping[str, tuple[int, ...]]:
    hidden, projections = config.hidden, projection_shapes(config)
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (config.vocab_size, hidden), "norm.weight": (hidden,)}
    for n in range(config.layers):
        layer = f"layers.{n}"
        shapes |= {f"{layer}.{norm}_layernorm.weight": (hidden,) for norm in ("input", "post_attention")}
        for name, shape in projections.items():
            part = "mlp" if name in ("gate", "up", "down") else "self_attn"
            shapes[f"{layer}.{part}.{name}_proj.weight"] = shape
            if name in "qkv" and config.backbone == "qwen2":
                shapes[f"{layer}.{part}.{name}_proj.bias"] = shape[:1]
        if config.backbone == "qwen3":
            shapes |= {f"{layer}.self_attn.{name}_norm.weight": (config.head_dim,) for name in "qk"}
    return shapes


@cache
def _tokenizer(vocabulary: int) -> Tokenizer:
    """A token for each byte, and words up to the size of the vocabulary, none of which any text is encoded as."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [f"w{n}." for n in range(vocabulary - len(alphabet) - len(_CONTROL))]
    tokenizer = Tokenizer(models.BPE({token: n for n, token in enumerate((*alphabet, *words))}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in _CONTROL])
    return tokenizer
