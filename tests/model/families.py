"""Tiny random checkpoints in each family's published layout, and slow, obvious decoders to compare ours with."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer
from torch import Tensor

from model.decode.schedule import Schedule
from model.families import Denoising
from tests.conftest import save_tiny

MASK_TOKEN = "<|MASK|>"

LAYOUTS = {
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
}


def with_mask(tokenizer: Tokenizer) -> Tokenizer:
    """The same tokenizer with a mask token that is, as in some families, not marked special."""
    twin = Tokenizer.from_str(tokenizer.to_str())
    twin.add_tokens([AddedToken(MASK_TOKEN, special=False, normalized=False)])
    return twin


def save_family(folder: Path, tokenizer: Tokenizer, name: str) -> tuple[Path, Path]:
    """A tiny checkpoint of a family, and the same weights as transformers knows them: (ours, theirs)."""
    backbone, said = LAYOUTS[name]
    masked = with_mask(tokenizer)
    theirs, ours = folder / "theirs", folder / "ours"
    save_tiny(theirs, masked, backbone)
    ours.mkdir()
    settings = json.loads((theirs / "config.json").read_text()) | said
    settings["mask_token_id"] = masked.token_to_id(MASK_TOKEN)
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
"""Written out from the published files, not taken from the code that is tested."""


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
class Slow:
    """Runs a transformers model over whole sequences with a mask of one's own, and no cache."""

    folder: Path

    def __post_init__(self) -> None:
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.float32, attn_implementation="eager")

    @torch.no_grad()
    def logits(self, tokens: list[int], sees: Tensor, past: Any = None) -> tuple[Tensor, Any]:
        """[tokens, vocabulary], and keys and values; `sees` is [tokens, past + tokens] bool."""
        start = 0 if past is None else past.get_seq_length()
        places = torch.arange(start, start + len(tokens))
        bias = torch.where(sees, 0.0, -math.inf)[None, None]
        out = self.model(
            torch.tensor([tokens]),
            attention_mask=bias,
            position_ids=places[None],
            past_key_values=past,
            use_cache=True,
        )
        return out.logits[0], out.past_key_values


def sees_of(how: Denoising, text: int, sizes: list[int], canvas: int = 0) -> Tensor:
    """Who sees whom in finished text with blocks behind it, pair by pair."""
    total = text + sum(sizes) + canvas
    block_of = [-1] * text + [n for n, size in enumerate(sizes) for _ in range(size)] + [len(sizes)] * canvas
    sees = torch.zeros(total, total, dtype=torch.bool)
    for q in range(total):
        for k in range(total):
            if how.text == "bidirectional":
                sees[q, k] = True
            elif q < text:
                sees[q, k] = k <= q if how.text == "causal" else k // how.block <= q // how.block and k < text
            elif block_of[q] == block_of[k]:
                sees[q, k] = how.inside == "bidirectional" or k <= q
            else:
                sees[q, k] = block_of[k] < block_of[q]
    return sees


def write_slowly(
    slow: Slow, ids: list[int], how: Denoising, schedule: Schedule, count: int, closing: set[int]
) -> list[int]:
    """What block denoising writes behind `ids`, all recomputed in every pass; greedy, one block at a time.

    Every block gets `max_steps` passes, and what is left of its masks is spread over the passes that are left.
    """
    whole = len(ids) // how.block * how.block if how.aligned else len(ids)
    text, opening, answer = ids[:whole], ids[whole:], []
    while len(answer) < count:
        block: list[int | None] = [*opening, *[None] * (how.block - len(opening))]
        kept, given, edits = None, len(opening), 0
        for number in range(1000):
            filled = [how.mask if token is None else token for token in block]
            if how.text == "bidirectional":
                about, kept = _one_canvas(slow, text, filled, how, len(answer), kept)
            else:
                logits, _ = slow.logits(text + filled, sees_of(how, len(text), [len(block)]))
                logits[:, how.mask] = -math.inf
                first = len(text)
                before = max(0, first - 1)  # where nothing stands before, the first token is given
                about = logits[before:][: len(block)] if how.shift else logits[first:]
                if how.shift and first == 0:
                    about = torch.cat((logits[:1], logits[:-1]))
                if how.seeded and number == 0 and not opening:
                    block[0], given = int(logits[first - 1].argmax()), 1
            edits += None not in block
            same = _one_step(block, about.softmax(-1), given, max(1, schedule.max_steps - number), schedule)
            prefix = next((n for n, token in enumerate(block) if token is None), len(block))
            ends = [n for n in range(3, prefix) if block[n] in closing]
            if ends and not how.aligned:
                block = block[: ends[0] + 1]
            if None not in block and (schedule.edit is None or same or edits == 16):
                break
        assert None not in block
        text = [*text, *(token for token in block if token is not None)]
        answer += [token for token in block[len(opening) :] if token is not None]
        opening = []
    return answer[:count]


def _one_step(block: list[int | None], chances: Tensor, given: int, left: int, schedule: Schedule) -> bool:
    """Settle, edit and mask again as `Schedule` says; whether nothing was changed."""
    before = list(block)
    best = [(float(row.max()), int(row.argmax())) for row in chances]
    masked = [n for n, token in enumerate(block) if token is None]
    surest = sorted(masked, key=lambda n: -best[n][0])
    if schedule.rule == "threshold":
        sure = [n for n in masked if best[n][0] >= schedule.bound]
    elif schedule.rule == "factor":
        fits = [k for k in range(1, len(surest) + 1) if (k + 1) * (1 - best[surest[k - 1]][0]) < schedule.bound]
        sure = surest[: max(fits, default=0)]
    else:
        entropy = [float(-(row * row.clamp(min=1e-30).log()).sum()) for row in chances]
        clear = sorted(masked, key=lambda n: entropy[n])
        sums = [sum(entropy[n] for n in clear[:k]) - entropy[clear[k - 1]] for k in range(1, len(clear) + 1)]
        sure = clear[: sum(total <= schedule.bound for total in sums)]
    fewest = math.ceil(len(masked) / left)
    if len(sure) < fewest:
        sure = [*sure, *(n for n in surest[:fewest] if n not in sure)]
    older = [n for n, token in enumerate(before) if token is not None and n >= given]
    changed = [n for n in older if schedule.edit is not None and best[n][1] != block[n] and best[n][0] > schedule.edit]
    for n in (*sure, *changed):
        block[n] = best[n][1]
    if schedule.remask is not None and left > 1:
        belief = {n: float(chances[n, before[n]]) for n in older if n not in changed}  # type: ignore[index]
        doubted = sorted((n for n in belief if belief[n] < schedule.remask), key=lambda n: belief[n])
        for n in doubted[: max(0, len(sure) - 1)]:
            block[n] = None
    return block == before


def _one_canvas(
    slow: Slow, text: list[int], filled: list[int], how: Denoising, written: int, kept: Any
) -> tuple[Tensor, Any]:
    """A pass of a bidirectional family: finished text is read with the first pass of a block, and its keys kept."""
    canvas = [how.mask] * max(0, how.canvas - written % how.canvas - len(filled))
    front = text if kept is None else text[-1:] if how.shift else []
    past = len(text) - len(front)
    sequence = front + filled + canvas
    everything = torch.ones(len(sequence), past + len(sequence), dtype=torch.bool)
    logits, kept = slow.logits(sequence, everything, kept)
    spare = kept.get_seq_length() - len(text) + how.shift
    if spare:
        kept.crop(-spare)
    logits[:, how.mask] = -math.inf
    first = len(front)
    return (logits[first - 1 : first - 1 + len(filled)] if how.shift else logits[first : first + len(filled)]), kept
