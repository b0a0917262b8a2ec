"""Model families as data: which backbone computes a family, what its files call things, how it attends, and how it
denoises. A new family is a new entry in `FAMILIES`; code from a checkpoint is never run.

Sources: the published configurations and generation scripts of each family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Literal

from model.checkpoint.gguf import BadModelFile

Attention = Literal["causal", "block", "bidirectional"]
"""What a token attends to: earlier tokens; its own block and all earlier blocks; all tokens."""


@dataclass(frozen=True)
class DiffusionConfig:
    """How a family of block diffusion models denoises.

    Attributes:
        mask_token: id of the mask token, unless the checkpoint's configuration gives another.
        block_size: tokens of a block, unless the checkpoint's configuration gives another.
        text_attention: attention within finished text.
        block_attention: attention within a block that is being denoised.
        predicts_next_token: whether a row predicts the next token, as in autoregressive models, and not its own.
        first_token_from_prefix: whether the clean row before a block predicts the block's first token.
        aligned: whether blocks begin at multiples of their size, so that the end of a prompt is the start of the first
            block. With block attention and without this, they are counted from the end of the prompt, whose first block
            may be shorter.
        verification: how drafts are made if the base model verifies them: `branches` (all outcomes in one forward
            pass) or `linear` (one forward pass drafts a whole block, another verifies it); None if it cannot verify.
        canvas: how many masks after the current block a bidirectional model expects.
    """

    mask_token: int
    block_size: int
    text_attention: Attention
    block_attention: Literal["causal", "bidirectional"] = "bidirectional"
    predicts_next_token: bool = False
    first_token_from_prefix: bool = False
    aligned: bool = False
    verification: Literal["branches", "linear"] | None = None
    canvas: int = 0

    @property
    def masks_anywhere(self) -> bool:
        """Whether it was trained on responses with masks anywhere. Then blocks may have any size, and one may begin
        before the one in front of it is complete. Others have seen finished text in front of a block only."""
        return self.text_attention == "bidirectional"

    @property
    def corrects(self) -> bool:
        """Whether it was trained to predict the tokens of a block that are not masked, too: a row that attends to the
        token it predicts was not. Then an accepted token can be masked again or replaced."""
        return self.block_attention == "causal"


@dataclass(frozen=True)
class Family:
    """A model family.

    Attributes:
        backbone: the architecture that computes it: `llama`, `qwen2` (biases on q, k, v) or `qwen3` (normalized q and
            k).
        architectures: the values of `architectures[0]` in its configuration, or of `model_type` if that is missing.
            Families that share one are told apart by the checkpoint's name.
        diffusion: how it denoises; None for an autoregressive family.
        tensor_names: our tensor names to the file's, with `{n}` for the layer. A tensor that is not listed has our
            name with `model.` in front.
        config_keys: our configuration keys to the file's, where they differ from Llama's.
        end_of_turn: the token that ends a response, if not only those that the configuration names.
    """

    name: str
    backbone: Literal["llama", "qwen2", "qwen3"]
    architectures: tuple[str, ...]
    diffusion: DiffusionConfig | None = None
    tensor_names: Mapping[str, str] = field(default_factory=dict)
    config_keys: Mapping[str, str] = field(default_factory=dict)
    end_of_turn: str | None = None


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

MAX_BLOCK_SIZE = 256
"""Most tokens of a block: the longest that any published model is denoised with."""


def _a2d(backbone: Literal["qwen2", "qwen3"], mask_token: int) -> tuple[Family, Family]:
    """dLLM's exports (`examples/a2d`), whose configuration does not say how they were trained. Its samplers do not
    shift predictions, count blocks from the end of the prompt, and stop at `<|im_end|>` whatever the base model's end
    token is."""
    architectures = f"A2D{backbone.capitalize()}LMHeadModel", f"a2d-{backbone}"
    mdlm = DiffusionConfig(mask_token, block_size=32, text_attention="bidirectional", canvas=128)
    bd3lm = replace(mdlm, text_attention="block", canvas=0)
    return (
        Family("mdlm", backbone, architectures, mdlm, end_of_turn="<|im_end|>"),
        Family("bd3lm", backbone, architectures, bd3lm, end_of_turn="<|im_end|>"),
    )


FAMILIES: tuple[Family, ...] = (
    Family("llama", "llama", ("LlamaForCausalLM", "llama")),
    Family("qwen2", "qwen2", ("Qwen2ForCausalLM", "qwen2")),
    Family("qwen3", "qwen3", ("Qwen3ForCausalLM", "qwen3")),
    Family("ministral", "llama", ("Ministral3ForCausalLM", "ministral3")),
    Family(
        name="sdar",
        backbone="qwen3",
        architectures=("SDARForCausalLM", "sdar"),
        diffusion=DiffusionConfig(mask_token=151669, block_size=4, text_attention="block", aligned=True),
    ),
    Family(
        name=I_DLM,
        backbone="qwen3",
        architectures=("IDLMForCausalLM", "idlm"),
        diffusion=DiffusionConfig(
            mask_token=151669,
            block_size=3,
            text_attention="causal",
            block_attention="causal",
            predicts_next_token=True,
            first_token_from_prefix=True,
            verification="branches",
        ),
    ),
    Family(
        name="fast-dllm-v2",
        backbone="qwen2",
        architectures=("Fast_dLLM_QwenForCausalLM", "Fast_dLLM_Qwen"),
        diffusion=DiffusionConfig(
            mask_token=151665,
            block_size=32,
            text_attention="block",
            predicts_next_token=True,
            first_token_from_prefix=True,
            aligned=True,
        ),
    ),
    Family(
        name="llada",
        backbone="llama",
        architectures=("LLaDAModelLM", "llada"),
        diffusion=DiffusionConfig(mask_token=126336, block_size=32, text_attention="bidirectional", canvas=128),
        tensor_names=_LLADA_NAMES,
        config_keys=_LLADA_KEYS,
    ),
    Family(
        name="dream",
        backbone="qwen2",
        architectures=("DreamModel", "Dream"),
        diffusion=DiffusionConfig(
            mask_token=151666, block_size=32, text_attention="bidirectional", predicts_next_token=True, canvas=128
        ),
    ),
    Family(
        name="nemotron-labs-diffusion",
        backbone="llama",
        architectures=("NemotronLabsDiffusionModel", "nemotron_labs_diffusion"),
        diffusion=DiffusionConfig(
            mask_token=100,
            block_size=32,
            text_attention="causal",
            first_token_from_prefix=True,
            verification="linear",
        ),
        tensor_names=_NEMOTRON_NAMES,
    ),
    *_a2d("qwen3", mask_token=151669),
    *_a2d("qwen2", mask_token=151665),
)


def detect_family(config: Mapping[str, Any], path: object, requested: str | None = None) -> Family:
    """Return the family of a checkpoint, given its `config.json`.

    `architectures[0]` decides if it is present. `model_type` is used only if it is not, because related models with a
    different computation (LLaDA-MoE, classifiers) share one. I-DLM is published under SDAR's architecture name: a
    strictly causal configuration or the checkpoint's name identifies it, or `requested` if neither does. dLLM's exports
    are told apart by the checkpoint's name or by `requested`.

    Args:
        path: the checkpoint's file or folder, for its name and for error messages.
        requested: the family that the user asked for. It must have the same backbone, if the architecture is known.

    Raises:
        BadModelFile: the family is unknown (the message lists the known ones) or ambiguous, or it is not `requested`.
    """
    names = [str(name) for name in (*(config.get("architectures") or ())[:1], config.get("model_type")) if name]
    sharing = [family for family in FAMILIES if names and names[0] in family.architectures]
    names_of_it = f"{checkpoint_name(path)} {config.get('_name_or_path')}".lower()
    detected = next(iter(sharing), None)
    if requested is not None:
        family = next((family for family in sharing if family.name == requested), get_family(requested))
        if detected is not None and detected.backbone != family.backbone:
            raise BadModelFile(f"{path} is a {detected.name} model, which cannot be computed as {requested}")
        return family
    if detected is None:
        raise BadModelFile(f"{path} is a {' / '.join(names) or 'nameless'} model; known families are {_known()}")
    if detected.name == "sdar" and (config.get("use_regular_causal") or "i-dlm" in names_of_it):
        return get_family(I_DLM)
    if len(sharing) > 1:
        named = [family for family in sharing if family.name in names_of_it]
        if len(named) != 1:
            choices = " or ".join(f"--family {family.name}" for family in sharing)
            raise BadModelFile(f"neither the configuration of {path} nor its name says how it denoises: add {choices}")
        return named[0]
    return detected


def checkpoint_name(path: object) -> str:
    """The name of a checkpoint's file or folder. In the Hugging Face cache, where folders are called after commits, it
    is that of the repository: `models--ORG--REPO`."""
    parts = PurePath(str(path)).parts
    return parts[-3] if len(parts) > 2 and parts[-2] == "snapshots" else parts[-1]


def uses_sliding_window(family: Family, config: Mapping[str, Any]) -> bool:
    """Whether a checkpoint uses sliding-window attention, which is not supported.

    Qwen configurations give a window that is used only if `use_sliding_window` is true (transformers' `Qwen2Config`
    defaults to false). The other families have no such flag: if they give a window, they use it.
    """
    used = config.get("use_sliding_window")
    if used is None and family.backbone == "llama":
        used = config.get("sliding_window") is not None
    return bool(used) or "sliding_attention" in (config.get("layer_types") or ())


def _known() -> str:
    return ", ".join(dict.fromkeys(family.name for family in FAMILIES))


def get_family(name: str) -> Family:
    """Return the family called `name`. Raises BadModelFile if there is none."""
    for family in FAMILIES:
        if family.name == name:
            return family
    raise BadModelFile(f"there is no family {name!r}; known families are {_known()}")


def diffusion_config(
    family: Family, config: Mapping[str, Any], tokenizer_mask: int | None = None
) -> DiffusionConfig | None:
    """The family's diffusion settings, with those that the checkpoint overrides.

    Args:
        tokenizer_mask: what the tokenizer calls its mask token. The id in `config.json` comes first.

    Raises:
        BadModelFile: its blocks are too large.
    """
    default = family.diffusion
    if default is None:
        return None
    mask = config.get("mask_token_id", tokenizer_mask)
    block = int(config.get("block_size") or config.get("bd_size") or default.block_size)
    if not 1 <= block <= MAX_BLOCK_SIZE:
        raise BadModelFile(f"the blocks of this checkpoint have {block} tokens, and must have 1 to {MAX_BLOCK_SIZE}")
    return replace(default, mask_token=default.mask_token if mask is None else int(mask), block_size=block)
