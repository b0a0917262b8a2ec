"""Opens a GGUF or safetensors checkpoint: its configuration, its tensors by a common set of names, and its tokenizer.

Tensor names are those of Hugging Face's Llama without the leading `model.`: `layers.0.self_attn.q_proj.weight`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from safetensors import SafetensorError, safe_open

from model.checkpoint.architectures import (
    DiffusionConfig,
    Family,
    checkpoint_name,
    detect_family,
    diffusion_config,
    uses_sliding_window,
)
from model.checkpoint.gguf import BadModelFile, GGUFFile, StoredBlocks, split_parts
from model.checkpoint.rope import RopeParameters, rope_from_config, rotary_frequencies
from model.checkpoint.tokenizer import CONTROL, TextTokenizer

_log = logging.getLogger("rejoinder.model")

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", "GGUFCheckpoint", "SafetensorsCheckpoint")

_GGUF_FAMILIES = ("llama", "qwen2", "qwen3")
"""Families that can be read from GGUF files. Diffusion models are published as safetensors."""

_ENDS = ("<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>")
"""Control tokens that end a response, whether a GGUF header names them or not: it has one id where the checkpoint that
it was made from has a list."""

_MAX_SIZE = 1 << 24
"""Larger sizes are damage, and would take all the memory. Contexts are the largest: 10 million tokens."""


@dataclass(frozen=True)
class DecoderConfig:
    """The configuration of a dense decoder.

    Raises:
        ValueError: a size cannot be one.
    """

    family: str
    """Its name in `architectures.py`."""
    backbone: str
    vocab_size: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    context_length: int
    """Maximum context of the model, in tokens."""
    norm_eps: float
    diffusion: DiffusionConfig | None = None
    """How it denoises, if it is a diffusion model."""

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "hidden",
            "layers",
            "heads",
            "kv_heads",
            "head_dim",
            "intermediate",
            "context_length",
        ):
            if not 1 <= (size := getattr(self, name)) <= _MAX_SIZE:
                raise ValueError(f"{name} is {size}")


def open_checkpoint(path: Path, family: str | None = None) -> Checkpoint:
    """Open a `.gguf` file or a folder with `config.json` and safetensors.

    Args:
        family: the family of a checkpoint folder, by its name in `architectures.py`; detected by default.

    Raises:
        BadModelFile: the checkpoint is missing, damaged, or of an unknown family.
    """
    if path.is_dir():
        return SafetensorsCheckpoint(path, family)
    if not path.exists():
        raise BadModelFile(f"there is no model file at {path}")
    if path.suffix == ".gguf":
        if family is not None:
            raise BadModelFile(f"{path} is a GGUF file, which states its own family: leave --family out")
        return GGUFCheckpoint(path)
    raise BadModelFile(f"{path} is neither a .gguf file nor a folder with config.json and safetensors")


def _reading(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
    """Decorate what reads a checkpoint, which may hold anything. Raises BadModelFile."""

    @wraps(method)
    def read(checkpoint: C, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(checkpoint, *args, **kwargs)
        except BadModelFile:
            raise
        except KeyError as error:
            raise BadModelFile(f"{checkpoint.path} lacks the metadata {error}: it is not a complete model") from None
        except Exception as error:  # also of the tokenizers package, which declares none
            raise BadModelFile(f"{checkpoint.path} is damaged ({error}): download it again") from None

    return read


_GGUF_NAMES = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """The name of a tensor in GGUF files."""
    stem, _, kind = name.rpartition(".")
    if stem.startswith("layers."):
        _, layer, part = stem.split(".", 2)
        return f"blk.{layer}.{_GGUF_NAMES[part]}.{kind}"
    return f"{_GGUF_NAMES[stem]}.{kind}"


class GGUFCheckpoint:
    """A checkpoint in one GGUF file. What its metadata lack, or have of another type, is a BadModelFile.

    Attributes:
        path: the file or folder it was opened from.
        config: its shape.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = GGUFFile(path)
        self._metadata = self._file.metadata
        family = str(self._metadata.get("general.architecture"))
        if family not in _GGUF_FAMILIES:
            raise BadModelFile(f"{path} is a {family!r} model; supported in GGUF files are {', '.join(_GGUF_FAMILIES)}")
        self.config = self._config(family)

    @_reading
    def _config(self, family: str) -> DecoderConfig:
        def value(key: str) -> Any:
            return self._metadata[f"{family}.{key}"]

        hidden, heads = int(value("embedding_length")), int(value("attention.head_count"))
        return DecoderConfig(
            family=family,
            backbone=family,
            vocab_size=len(self._metadata["tokenizer.ggml.tokens"]),
            hidden=hidden,
            layers=int(value("block_count")),
            heads=heads,
            kv_heads=int(self._metadata.get(f"{family}.attention.head_count_kv", heads)),
            head_dim=int(self._metadata.get(f"{family}.attention.key_length", hidden // heads)),
            intermediate=int(value("feed_forward_length")),
            context_length=int(value("context_length")),
            norm_eps=float(value("attention.layer_norm_rms_epsilon")),
        )

    def has_tensor(self, name: str) -> bool:
        """Whether the checkpoint has the tensor `name`."""
        return gguf_name(name) in self._file.tensor_names

    def _stored_name(self, name: str) -> str:
        if not self.has_tensor(name):
            raise BadModelFile(f"{self.path} has no tensor {gguf_name(name)}: it is not a complete model")
        return gguf_name(name)

    def as_stored(self, name: str, values: torch.Tensor) -> torch.Tensor:
        """A matrix as `tensor` returns it, with its rows in the order of the file."""
        if self._has_paired_rows(name):
            return _halves_to_pairs(values, self.config.head_dim)
        return values

    def _has_paired_rows(self, name: str) -> bool:
        return self.config.backbone == "llama" and name.endswith(("q_proj.weight", "k_proj.weight"))

    @_reading
    def tensor(self, name: str) -> torch.Tensor:
        """The tensor `name`, float32 on the CPU. Raises BadModelFile if it is missing."""
        values = self._file.tensor(self._stored_name(name))
        if self._has_paired_rows(name):
            return _pairs_to_halves(values, self.config.head_dim)
        return values

    @_reading
    def blocks(self, name: str) -> StoredBlocks | None:
        """The matrix `name` as a GGUF file stores it, its rows in the order of `tensor`; None for other checkpoints."""
        stored = self._file.blocks(self._stored_name(name))
        if self._has_paired_rows(name):
            rows = _pairs_to_halves(torch.from_numpy(stored.blocks.copy()), self.config.head_dim)
            return replace(stored, blocks=rows.numpy())
        return stored

    @_reading
    def rope(self, scaling: Mapping[str, Any] | None = None) -> RopeParameters:
        """The parameters of its rotary position embedding.

        Args:
            scaling: replaces the checkpoint's own, in the form of `rope_scaling` in a `config.json`.
        """
        theta = float(self._metadata.get(f"{self.config.family}.rope.freq_base", 10_000.0))
        if scaling is not None:
            return rope_from_config(scaling, theta, self.config.head_dim, self.path)
        kind = self._metadata.get(f"{self.config.family}.rope.scaling.type", "none")
        if (
            kind not in ("none", "linear")
            or float(self._metadata.get(f"{self.config.family}.rope.scaling.factor", 1)) != 1
        ):
            raise BadModelFile(f"{self.path} has rope scaling {kind!r}, which is not supported in GGUF files")
        frequencies = rotary_frequencies(theta, self.config.head_dim)
        if "rope_freqs.weight" in self._file.tensor_names:
            return RopeParameters(frequencies / self._file.tensor("rope_freqs.weight"))
        return RopeParameters(frequencies)

    @_reading
    def tokenizer(self) -> TextTokenizer:
        """The checkpoint's tokenizer."""
        return TextTokenizer.from_gguf(self._metadata)

    def chat_template(self) -> str | None:
        """The source of its Jinja chat template, if it has one."""
        template = self._metadata.get("tokenizer.chat_template")
        return None if template is None else str(template)

    @_reading
    def template_tokens(self) -> dict[str, str]:
        """The text of the tokens that chat templates call `bos_token` and `eos_token`."""
        texts = self._metadata["tokenizer.ggml.tokens"]
        ids = {name: self._metadata.get(f"tokenizer.ggml.{name}_id") for name in ("bos_token", "eos_token")}
        return {name: texts[token] for name, token in ids.items() if token is not None}

    @_reading
    def stop_tokens(self) -> frozenset[int]:
        """Ids of the tokens that end a response."""
        named = (f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
        kinds = self._metadata.get("tokenizer.ggml.token_type", [])
        known = enumerate(zip(self._metadata["tokenizer.ggml.tokens"], kinds, strict=False))
        ends = {token for token, (text, kind) in known if kind == CONTROL and text in _ENDS}
        return frozenset({int(self._metadata[key]) for key in named if key in self._metadata} | ends)


def _pairs_to_halves(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Undo llama.cpp's permutation of Llama's query and key rows. llama.cpp rotates neighbouring pairs, Hugging Face
    the two halves of a head (convert_hf_to_gguf.py, LlamaModel.permute)."""
    rows, columns = weight.shape
    return weight.view(rows // head_dim, head_dim // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def _halves_to_pairs(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """The inverse of `_pairs_to_halves`."""
    rows, columns = weight.shape
    return weight.view(rows // head_dim, 2, head_dim // 2, columns).transpose(1, 2).reshape(rows, columns)


class SafetensorsCheckpoint:
    """A checkpoint folder as `save_pretrained` writes it, with one file or with shards and an index. It has what
    `GGUFCheckpoint` has, and raises BadModelFile where that does."""

    def __init__(self, folder: Path, family: str | None = None) -> None:
        self.path = folder
        self._open(family)

    @_reading
    def _open(self, family: str | None) -> None:
        self._settings = self._json("config.json")
        self._family = detect_family(self._settings, self.path, family)
        _log.info("%s is read as %s (--family names another)", checkpoint_name(self.path), self._family.name)
        self.config = self._config(self._family)
        if uses_sliding_window(self._family, self._settings):
            raise BadModelFile(f"{self.path} uses sliding-window attention, which is not supported")
        self._shards = self._find_shards()

    def _config(self, family: Family) -> DecoderConfig:
        settings = self._settings

        def required(key: str) -> Any:
            return settings[family.config_keys.get(key, key)]

        def optional(key: str) -> Any:
            return settings.get(family.config_keys.get(key, key))

        hidden, heads = int(required("hidden_size")), int(required("num_attention_heads"))
        return DecoderConfig(
            family=family.name,
            backbone=family.backbone,
            vocab_size=int(required("vocab_size")),
            hidden=hidden,
            layers=int(required("num_hidden_layers")),
            heads=heads,
            kv_heads=int(optional("num_key_value_heads") or heads),
            head_dim=int(optional("head_dim") or hidden // heads),
            intermediate=int(required("intermediate_size")),
            context_length=int(required("max_position_embeddings")),
            norm_eps=float(required("rms_norm_eps")),
            diffusion=diffusion_config(family, settings, self._id(self._special_tokens().get("mask_token"))),
        )

    @_reading
    def rope(self, scaling: Mapping[str, Any] | None = None) -> RopeParameters:
        """Read `rope_parameters` (transformers 5) or `rope_scaling` (transformers 4, optional)."""
        own: dict[str, Any] = self._settings.get("rope_parameters") or self._settings.get("rope_scaling") or {}
        theta = float(own.get("rope_theta") or self._settings.get("rope_theta") or 10_000.0)
        return rope_from_config(own if scaling is None else scaling, theta, self.config.head_dim, self.path)

    def _find_shards(self) -> dict[str, Path]:
        index = self.path / "model.safetensors.index.json"
        if index.exists():
            names = self._json(index.name)["weight_map"]
            for shard in set(names.values()):
                if Path(shard).name != shard:
                    raise BadModelFile(f"{index} names {shard!r}, which is no file of its folder: download it again")
            return {name: self.path / shard for name, shard in names.items()}
        path = self.path / "model.safetensors"
        if not path.exists():
            raise BadModelFile(f"{self.path} has neither model.safetensors nor an index of shards")
        try:
            with safe_open(path, "pt") as file:
                return dict.fromkeys(file.keys(), path)
        except (SafetensorError, OSError) as error:
            raise BadModelFile(f"{path} is damaged ({error}): download it again") from None

    def has_tensor(self, name: str) -> bool:
        return self.stored_name(name) in self._shards

    @_reading
    def tensor(self, name: str) -> torch.Tensor:
        stored = self.stored_name(name)
        if stored not in self._shards:
            raise BadModelFile(f"{self.path} has no tensor {stored}: it is not a complete {self.config.family} model")
        try:
            with safe_open(self._shards[stored], "pt") as file:
                values: torch.Tensor = file.get_tensor(stored)
                return values.to(torch.float32)
        except (SafetensorError, OSError) as error:
            raise BadModelFile(f"{self._shards[stored]} cannot be read ({error}): download it again") from None

    @_reading
    def blocks(self, name: str) -> StoredBlocks | None:
        return None

    def stored_name(self, name: str) -> str:
        """The name of a tensor in the files."""
        names = self._family.tensor_names
        if name in names:
            return names[name]
        if name.startswith("layers."):
            _, n, rest = name.split(".", 2)
            for pattern in (f"layers.{{n}}.{rest}", "layers.{n}.{rest}"):
                if pattern in names:
                    return names[pattern].format(n=n, rest=rest)
        return name if name.startswith("lm_head") else f"model.{name}"

    @_reading
    def tokenizer(self) -> TextTokenizer:
        return TextTokenizer.from_folder(self.path)

    @_reading
    def chat_template(self) -> str | None:
        jinja = self.path / "chat_template.jinja"
        if jinja.exists():
            return jinja.read_text(encoding="utf-8")
        path = self.path / "tokenizer_config.json"
        template = self._json(path.name).get("chat_template") if path.exists() else None
        return template if isinstance(template, str) else None

    @_reading
    def template_tokens(self) -> dict[str, str]:
        tokens = self._special_tokens()
        return {name: tokens[name] for name in ("bos_token", "eos_token") if name in tokens}

    def _special_tokens(self) -> dict[str, str]:
        """The texts of the tokens that `tokenizer_config.json` names."""
        path = self.path / "tokenizer_config.json"
        config = self._json(path.name) if path.exists() else {}
        tokens = {}
        for name in ("bos_token", "eos_token", "mask_token"):
            token = config.get(name)
            token = token.get("content") if isinstance(token, dict) else token  # transformers 4 wrote objects
            if isinstance(token, str):
                tokens[name] = token
        return tokens

    def _id(self, token: str | None) -> int | None:
        return None if token is None else self.tokenizer().token_id(token)

    @_reading
    def stop_tokens(self) -> frozenset[int]:
        end_of_turn = self._id(self._family.end_of_turn)
        ids: set[int] = set() if end_of_turn is None else {end_of_turn}
        for name in ("generation_config.json", "config.json"):
            if (self.path / name).exists():
                eos = self._json(name).get("eos_token_id")
                ids.update(int(token) for token in (eos if isinstance(eos, list) else [] if eos is None else [eos]))
        return frozenset(ids)

    def _json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            loaded = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise BadModelFile(f"{self.path} has no {name}: it is not a checkpoint folder") from None
        except (ValueError, RecursionError, OSError) as error:
            raise BadModelFile(f"{path} is not valid JSON ({error}): download it again") from None
        if not isinstance(loaded, dict):
            raise BadModelFile(f"{path} does not contain a JSON object")
        return loaded


Checkpoint = GGUFCheckpoint | SafetensorsCheckpoint
"""An open checkpoint."""


def weight_files(path: Path) -> list[Path]:
    """The files that hold the weights of a checkpoint: a GGUF file or its parts, or the safetensors of a folder."""
    return sorted(path.glob("*.safetensors")) if path.is_dir() else split_parts(path)
