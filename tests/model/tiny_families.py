"""Tiny random checkpoints in each family's published layout, and slow, simple reference decoders."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer
from torch import Tensor

from model.checkpoint.architectures import DiffusionConfig
from model.decode.effort import DenoisingSchedule
from tests.conftest import save_tiny_checkpoint

MASK_TOKEN = "<|MASK|>"

FAMILY_CONFIGS = {
    "sdar": ("qwen3", {"architectures": ["SDARForCausalLM"], "model_type": "sdar", "block_size": 4}),
    "i-dlm": (
        "qwen3",
        {"architectures": ["SDARForCausalLM"], "model_type": "sdar", "block_size": 3, "use_regular_causal": True},
    ),
    "fast-dllm-v2": (
        "qwen2",
        {"architectures": ["Fast_dLLM_QwenForCausalLM"], "model_type": "Fast_dLLM_Qwen", "bd_size": 8},
    ),
    "llada": ("llama", {"architectures": ["LLaDAModelLM"], "model_type": "llada"}),
    "dream": ("qwen2", {"architectures": ["DreamModel"], "model_type": "Dream"}),
    "nemotron-labs-diffusion": (
        "ministral3",
        {
            "architectures": ["NemotronLabsDiffusionModel"],
            "model_type": "nemotron_labs_diffusion",
            "block_size": 8,
        },
    ),
    "mdlm": ("qwen3", {"architectures": ["A2DQwen3LMHeadModel"], "model_type": "a2d-qwen3"}),
    "bd3lm": ("qwen2", {"architectures": ["A2DQwen2LMHeadModel"], "model_type": "a2d-qwen2"}),
}


def add_mask_token(tokenizer: Tokenizer) -> Tokenizer:
    """A copy of the tokenizer with a mask token that is not marked special, as in some families."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.add_tokens([AddedToken(MASK_TOKEN, special=False, normalized=False)])
    return copy


def save_tiny_family(folder: Path, tokenizer: Tokenizer, name: str) -> tuple[Path, Path]:
    """Save a tiny checkpoint of a family, and the same weights in transformers' layout; return both folders."""
    backbone, overrides = FAMILY_CONFIGS[name]
    tokenizer = add_mask_token(tokenizer)
    theirs, ours = folder / "theirs", folder / f"tiny-{name}"
    save_tiny_checkpoint(theirs, tokenizer, backbone)
    ours.mkdir()
    settings = json.loads((theirs / "config.json").read_text()) | overrides
    if name in ("mdlm", "bd3lm"):  # the tokenizer names it
        (ours / "tokenizer_config.json").write_text(json.dumps({"mask_token": MASK_TOKEN}))
    else:
        settings["mask_token_id"] = tokenizer.token_to_id(MASK_TOKEN)
    tensors = load_file(theirs / "model.safetensors")
    if name == "llada":
        settings, tensors = _as_llada(settings, tensors)
    if name == "nemotron-labs-diffusion":
        tensors = {
            key.replace("model.", "encoder.", 1) if key.startswith("model.") else "diffusion_head.weight": value
            for key, value in tensors.items()
        }
    (ours / "config.json").write_text(json.dumps(settings))
    save_file(tensors, ours / "model.safetensors")
    for file in ("tokenizer.json", "generation_config.json"):
        (ours / file).write_text((theirs / file).read_text())
    return ours, theirs


LLADA_KEYS = {
    "hidden_size": "d_model",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "num_hidden_layers": "n_layers",
    "intermediate_size": "mlp_hidden_size",
    "max_position_embeddings": "max_sequence_length",
}
LLADA_PARTS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ff_norm",
    "self_attn.q_proj": "q_proj",
    "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj",
    "self_attn.o_proj": "attn_out",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
}
"""Copied from the published files, not from the code under test."""


def _as_llada(settings: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    renamed = {LLADA_KEYS.get(key, key): value for key, value in settings.items()}
    renamed["rope_theta"] = renamed.pop("rope_parameters")["rope_theta"]
    renamed["embedding_size"] = renamed["vocab_size"]
    names = {
        "model.embed_tokens.weight": "model.transformer.wte.weight",
        "model.norm.weight": "model.transformer.ln_f.weight",
        "lm_head.weight": "model.transformer.ff_out.weight",
    }
    for n in range(settings["num_hidden_layers"]):
        for part, theirs in LLADA_PARTS.items():
            names[f"model.layers.{n}.{part}.weight"] = f"model.transformer.blocks.{n}.{theirs}.weight"
    return renamed, {names[key]: value for key, value in tensors.items()}


@dataclass
class ReferenceModel:
    """Runs a transformers model on whole sequences with any attention mask, without a cache of ours."""

    folder: Path

    def __post_init__(self) -> None:
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.float32, attn_implementation="eager")

    @torch.no_grad()
    def logits(self, tokens: list[int], attention_mask: Tensor, past: Any = None) -> tuple[Tensor, Any]:
        """Logits [tokens, vocabulary], and keys and values. `attention_mask` is [tokens, past + tokens] bool."""
        start = 0 if past is None else past.get_seq_length()
        positions = torch.arange(start, start + len(tokens))
        bias = torch.where(attention_mask, 0.0, -math.inf)[None, None]
        out = self.model(
            torch.tensor([tokens]),
            attention_mask=bias,
            position_ids=positions[None],
            past_key_values=past,
            use_cache=True,
        )
        return out.logits[0], out.past_key_values


@functools.cache
def reference_mask(diffusion: DiffusionConfig, text: int, sizes: tuple[int, ...], canvas: int = 0) -> Tensor:
    """The attention mask of finished text followed by blocks of these sizes, computed pair by pair."""
    total = text + sum(sizes) + canvas
    block_of = [-1] * text + [n for n, size in enumerate(sizes) for _ in range(size)] + [len(sizes)] * canvas
    size = diffusion.block_size
    mask = torch.zeros(total, total, dtype=torch.bool)
    for q in range(total):
        for k in range(total):
            if diffusion.text_attention == "bidirectional":
                mask[q, k] = True
            elif q < text:
                first = text % size  # 0 where blocks begin at multiples of their size
                in_block = (k - first) // size <= (q - first) // size
                mask[q, k] = k <= q if diffusion.text_attention == "causal" else in_block and k < text
            elif block_of[q] == block_of[k]:
                mask[q, k] = diffusion.block_attention == "bidirectional" or k <= q
            else:
                mask[q, k] = block_of[k] < block_of[q]
    return mask


def reference_denoise(
    model: ReferenceModel,
    ids: list[int],
    diffusion: DiffusionConfig,
    schedule: DenoisingSchedule,
    count: int,
    closing: set[int],
) -> list[int]:
    """Generate `count` tokens after `ids` by block denoising: greedily, one block at a time, everything recomputed in
    every step.

    Every block gets `max_steps` steps, and its remaining masks are spread over its remaining steps.
    """
    whole = len(ids) // diffusion.block_size * diffusion.block_size if diffusion.aligned else len(ids)
    text, opening, output = ids[:whole], ids[whole:], []
    while len(output) < count:
        block: list[int | None] = [*opening, *[None] * (diffusion.block_size - len(opening))]
        cache, fixed, edits = None, len(opening), 0
        for number in range(1000):
            filled = [diffusion.mask_token if token is None else token for token in block]
            if diffusion.text_attention == "bidirectional":
                block_logits, cache = _canvas_logits(model, text, filled, diffusion, len(output), cache)
            else:
                logits, _ = model.logits(text + filled, reference_mask(diffusion, len(text), (len(block),)))
                logits[:, diffusion.mask_token] = -math.inf
                first = len(text)
                before = max(0, first - 1)  # if there is no text before, the first token is given
                block_logits = logits[before:][: len(block)] if diffusion.predicts_next_token else logits[first:]
                if diffusion.predicts_next_token and first == 0:
                    block_logits = torch.cat((logits[:1], logits[:-1]))
                if diffusion.first_token_from_prefix and number == 0 and not opening:
                    block[0], fixed = int(logits[first - 1].argmax()), 1
            edits += None not in block
            steps_left = max(1, schedule.max_steps - number)
            unchanged = _denoise_step(block, block_logits.softmax(-1), fixed, steps_left, schedule)
            prefix = next((n for n, token in enumerate(block) if token is None), len(block))
            ends = [n for n in range(3, prefix) if block[n] in closing]
            if ends and diffusion.text_attention != "block":
                block = block[: ends[0] + 1]
            if None not in block and (schedule.edit is None or unchanged or edits == 16):
                break
        assert None not in block
        text = [*text, *(token for token in block if token is not None)]
        output += [token for token in block[len(opening) :] if token is not None]
        opening = []
    return output[:count]


def _denoise_step(
    block: list[int | None], probabilities: Tensor, fixed: int, steps_left: int, schedule: DenoisingSchedule
) -> bool:
    """Accept, edit and remask tokens as `DenoisingSchedule` says; returns whether nothing changed."""
    before = list(block)
    best = [(float(row.max()), int(row.argmax())) for row in probabilities]
    masked = [n for n, token in enumerate(block) if token is None]
    by_confidence = sorted(masked, key=lambda n: -best[n][0])
    if schedule.rule == "threshold":
        accepted = [n for n in masked if best[n][0] >= schedule.bound]
    elif schedule.rule == "factor":
        counts = range(1, len(by_confidence) + 1)
        fitting = [k for k in counts if (k + 1) * (1 - best[by_confidence[k - 1]][0]) < schedule.bound]
        accepted = by_confidence[: max(fitting, default=0)]
    else:
        entropy = [float(-(row * row.clamp(min=1e-30).log()).sum()) for row in probabilities]
        by_entropy = sorted(masked, key=lambda n: entropy[n])
        counts = range(1, len(by_entropy) + 1)
        sums = [sum(entropy[n] for n in by_entropy[:k]) - entropy[by_entropy[k - 1]] for k in counts]
        accepted = by_entropy[: sum(total <= schedule.bound for total in sums)]
    min_count = math.ceil(len(masked) / steps_left)
    if len(accepted) < min_count:
        accepted = [*accepted, *(n for n in by_confidence[:min_count] if n not in accepted)]
    older = [n for n, token in enumerate(before) if token is not None and n >= fixed]
    edited = [n for n in older if schedule.edit is not None and best[n][1] != block[n] and best[n][0] > schedule.edit]
    for n in (*accepted, *edited):
        block[n] = best[n][1]
    if schedule.remask is not None and steps_left > 1:
        confidence = {n: float(probabilities[n, before[n]]) for n in older if n not in edited}  # type: ignore[index]
        doubtful = sorted((n for n in confidence if confidence[n] < schedule.remask), key=lambda n: confidence[n])
        for n in doubtful[: max(0, len(accepted) - 1)]:
            block[n] = None
    return block == before


def _canvas_logits(
    model: ReferenceModel, text: list[int], filled: list[int], diffusion: DiffusionConfig, written: int, cache: Any
) -> tuple[Tensor, Any]:
    """A step of a bidirectional family. Its first step of a block also runs the finished text, whose keys are kept."""
    canvas = [diffusion.mask_token] * max(0, diffusion.canvas - written % diffusion.canvas - len(filled))
    front = text if cache is None else text[-1:] if diffusion.predicts_next_token else []
    past = len(text) - len(front)
    sequence = front + filled + canvas
    full_mask = torch.ones(len(sequence), past + len(sequence), dtype=torch.bool)
    logits, cache = model.logits(sequence, full_mask, cache)
    spare = cache.get_seq_length() - len(text) + diffusion.predicts_next_token
    if spare:
        cache.crop(-spare)
    logits[:, diffusion.mask_token] = -math.inf
    first = len(front) - diffusion.predicts_next_token
    return logits[first : first + len(filled)], cache
