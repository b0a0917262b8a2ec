"""Families of checkpoints as rows of data: which backbone computes them, what their files call things, how they look
at a text, and how they denoise. A new family is a new row, and no code of its own is ever run.

Sources: the published configurations and generation scripts of each family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Literal

from model.gguf_file import BadModelFile

Attention = Literal["causal", "block", "bidirectional"]
"""Who sees whom in a text: what came before; all of one's own block and the blocks before it; everything."""


@dataclass(frozen=True)
class Denoising:
    """How a family denoises.

    Attributes:
        mask: id of the mask token where the configuration does not say.
        block: tokens of a block where the configuration does not say.
        text: how finished text is read.
        inside: how the rows of a block see each other.
        shift: whether a row guesses the token behind its own, as autoregressive models do.
        seeded: whether the clean row before a block says the block's first token.
        aligned: whether blocks begin at whole multiples of their size, so that a prompt's end opens the first one.
        verified: how drafts are made when the base model checks them: `branches` (all outcomes in one pass) or
            `linear` (a pass that drafts a whole block, a pass that checks it); None where it cannot check.
        canvas: masks behind the current block that a bidirectional model wants to see.
    """

    mask: int
    block: int
    text: Attention
    inside: Literal["causal", "bidirectional"] = "bidirectional"
    shift: bool = False
    seeded: bool = False
    aligned: bool = False
    verified: Literal["branches", "linear"] | None = None
    canvas: int = 0


@dataclass(frozen=True)
class Family:
    """One family.

    Attributes:
        backbone: what computes it: `llama`, `qwen2` (biases on q, k, v) or `qwen3` (normalized q and k).
        architectures: what its configuration says in `architectures[0]`, or in `model_type` where that is missing.
        names: our tensor names to the file's, `{n}` for the layer; what is not listed is the same with `model.` before.
        keys: our names of configuration keys to the file's, where they differ from Llama's.
    """

    name: str
    backbone: Literal["llama", "qwen2", "qwen3"]
    architectures: tuple[str, ...]
    denoising: Denoising | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)


_LLADA_NAMES = {
    "embed_tokens.weight": "model.transformer.wte.weight",
    "norm.weight": "model.transformer.ln_f.weight",
    "lm_head.weight": "model.transformer.ff_out.weight",
    "layers.{n}.input_layernorm.weight": "model.transformer.blocks.{n}.attn_norm.weight",
    "layers.{n}.post_attention_layernorm.weight": "model.transformer.blocks.{n}.ff_norm.weight",
    "layers.{n}.self_attn.q_proj.weight": "model.transformer.blocks.{n}.q_proj.weight",
    "layers.{n}.self_attn.k_proj.weight": "model.transformer.blocks.{n}.k_proj.weight",
    "layers.{n}.self_attn.v_proj.weight": "model.transformer.blocks.{n}.v_proj.weight",
    "layers.{n}.self_attn.o_proj.weight": "model.transformer.blocks.{n}.attn_out.weight",
    "layers.{n}.mlp.gate_proj.weight": "model.transformer.blocks.{n}.ff_proj.weight",
    "layers.{n}.mlp.up_proj.weight": "model.transformer.blocks.{n}.up_proj.weight",
    "layers.{n}.mlp.down_proj.weight": "model.transformer.blocks.{n}.ff_out.weight",
}
_LLADA_KEYS = {
    "hidden_size": "d_model",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "num_hidden_layers": "n_layers",
    "intermediate_size": "mlp_hidden_size",
    "vocab_size": "embedding_size",
    "max_position_embeddings": "max_sequence_length",
}
_NEMOTRON_NAMES = {
    "embed_tokens.weight": "encoder.embed_tokens.weight",
    "norm.weight": "encoder.norm.weight",
    "lm_head.weight": "diffusion_head.weight",
    "layers.{n}.{rest}": "encoder.layers.{n}.{rest}",
}

I_DLM = "i-dlm"

FAMILIES: tuple[Family, ...] = (
    Family("llama", "llama", ("LlamaForCausalLM", "llama")),
    Family("qwen2", "qwen2", ("Qwen2ForCausalLM", "qwen2")),
    Family("qwen3", "qwen3", ("Qwen3ForCausalLM", "qwen3")),
    Family("ministral", "llama", ("Ministral3ForCausalLM", "ministral3")),
    Family(
        "sdar", "qwen3", ("SDARForCausalLM", "sdar"),
        Denoising(mask=151669, block=4, text="block", aligned=True),
    ),
    Family(
        I_DLM, "qwen3", ("IDLMForCausalLM", "idlm"),
        Denoising(mask=151669, block=3, text="causal", inside="causal", shift=True, seeded=True, verified="branches"),
    ),
    Family(
        "fast-dllm-v2", "qwen2", ("Fast_dLLM_QwenForCausalLM", "Fast_dLLM_Qwen"),
        Denoising(mask=151665, block=32, text="block", shift=True, seeded=True, aligned=True),
    ),
    Family(
        "llada", "llama", ("LLaDAModelLM", "llada"),
        Denoising(mask=126336, block=32, text="bidirectional", canvas=128), _LLADA_NAMES, _LLADA_KEYS,
    ),
    Family(
        "dream", "qwen2", ("DreamModel", "Dream"),
        Denoising(mask=151666, block=32, text="bidirectional", shift=True, canvas=128),
    ),
    Family(
        "nemotron-labs-diffusion", "llama", ("NemotronLabsDiffusionModel", "nemotron_labs_diffusion"),
        Denoising(mask=100, block=32, text="causal", seeded=True, verified="linear"), _NEMOTRON_NAMES,
    ),
)  # fmt: skip


def find_family(said: Mapping[str, Any], where: object, asked: str | None = None) -> Family:
    """The family of a checkpoint, by its configuration.

    `architectures[0]` decides where it is there; `model_type` only where it is not, because relatives that are
    computed otherwise (LLaDA-MoE, classifiers) share one. I-DLM is published under SDAR's architecture name; a strictly
    causal configuration, or its name, tells it apart, and `asked` where neither does.

    Args:
        asked: the family's name, when the user knows better; of the same backbone where the architecture is known.

    Raises:
        BadModelFile: a family that is not known, with the list of those that are; or `asked` does not fit.
    """
    named = [str(name) for name in (*(said.get("architectures") or ())[:1], said.get("model_type")) if name]
    found = next((family for family in FAMILIES if named and named[0] in family.architectures), None)
    if asked is not None:
        family = family_named(asked)
        if found is not None and found.backbone != family.backbone:
            raise BadModelFile(f"{where} is a {found.name} model, which cannot be computed as {asked}")
        return family
    if found is None:
        raise BadModelFile(f"{where} is a {' / '.join(named) or 'nameless'} model; known families are {_known()}")
    name = f"{PurePath(str(where)).name} {said.get('_name_or_path')}"
    if found.name == "sdar" and (said.get("use_regular_causal") or "i-dlm" in name.lower()):
        return family_named(I_DLM)
    return found


def slides(family: Family, said: Mapping[str, Any]) -> bool:
    """Whether a checkpoint looks through a sliding window, which is not computed.

    Qwen's configurations name a window that is used only where `use_sliding_window` says so (transformers'
    `Qwen2Config` has it off); the others have no such flag, and a window that is named is used.
    """
    used = said.get("use_sliding_window")
    if used is None and family.backbone == "llama":
        used = said.get("sliding_window") is not None
    return bool(used) or "sliding_attention" in (said.get("layer_types") or ())


def _known() -> str:
    return ", ".join(family.name for family in FAMILIES)


def family_named(name: str) -> Family:
    """The row called `name`. Raises BadModelFile where there is none."""
    found = next((family for family in FAMILIES if family.name == name), None)
    if found is None:
        raise BadModelFile(f"there is no family {name!r}; known families are {_known()}")
    return found


def denoising_of(family: Family, said: Mapping[str, Any]) -> Denoising | None:
    """A family's way of denoising, with what this checkpoint's configuration says about it."""
    own = family.denoising
    if own is None:
        return None
    mask = said.get("mask_token_id")
    block = said.get("block_size") or said.get("bd_size")
    return replace(own, mask=own.mask if mask is None else int(mask), block=int(block or own.block))
