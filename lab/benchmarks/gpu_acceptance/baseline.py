"""Real weights: tokens per second of one conversation, and what transformers does with the same weights on the same
device: its Qwen2 in bfloat16 with a static cache, compiled."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from chat.types import Message
from lab.benchmarks.gpu_acceptance.answers import SYSTEM, ask, running
from lab.benchmarks.gpu_acceptance.context import Context, NotPossibleHere
from lab.benchmarks.gpu_acceptance.text import questions
from lab.benchmarks.gpu_acceptance.weights import models, precision
from model.checkpoint.chat_template import CHATML, ChatTemplate
from model.checkpoint.checkpoint import Checkpoint, open_checkpoint
from model.engine.loader import load_model

_TOKENS, _QUESTIONS = 200, 5


def run(context: Context) -> None:
    """Run the stage."""
    for path in models(context):
        context.check(f"{path.stem}: tokens/s", lambda p=path: ours(context, p))
        context.check(f"{path.stem}: tokens/s of transformers", lambda p=path: transformers_speed(context, p))


def ours(context: Context, path: Path) -> Mapping[str, Any]:
    """Tokens per second after the first, with and without drafts, and until the first."""
    tokens, count = (_TOKENS, _QUESTIONS) if context.on_gpu else (20, 1)
    model = load_model(path, device=str(context.device), precision=precision(context))
    figures: dict[str, Any] = {}
    with running(model, max_slots=1) as engine:
        ask(engine, "Hello!", 10)
        for name, drafting in (("drafts", True), ("no drafts", False)):
            found = [ask(engine, question, tokens, drafting=drafting) for question in questions(count)]
            seconds = sum(one.seconds - one.first_s for one in found)
            steps = sum(one.steps for one in found)
            figures[f"tokens/s, {name}"] = sum(one.tokens for one in found) / seconds
            figures[f"ms a step, {name}"] = seconds / max(1, steps - count) * 1e3
            figures[f"tokens a step, {name}"] = sum(one.tokens for one in found) / max(1, steps)
        figures["first token ms"] = sorted(one.first_s for one in found)[len(found) // 2] * 1e3
    return figures


def transformers_speed(context: Context, path: Path) -> Mapping[str, Any]:
    """Tokens per second of transformers' greedy generation after the first token."""
    checkpoint = open_checkpoint(path)
    try:
        model = transformers_model(checkpoint, context.device, torch.bfloat16 if context.on_gpu else torch.float32)
    except ImportError as error:
        raise NotPossibleHere(f"transformers is not installed ({error})") from None
    tokenizer, tokens = checkpoint.tokenizer(), _TOKENS if context.on_gpu else 8
    template = ChatTemplate(checkpoint.chat_template() or CHATML, tokenizer, checkpoint.template_tokens())
    ids = template.encode([SYSTEM, Message("user", questions(1)[0])])
    inputs = torch.tensor([ids], device=context.device)
    options = {"cache_implementation": "static", "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    if not context.on_gpu:
        options["disable_compile"] = True  # transformers compiles by itself where a static cache is on a GPU

    def generate(count: int) -> float:
        began = time.perf_counter()
        out = model.generate(inputs, max_new_tokens=count, min_new_tokens=count, **options)
        context.synchronize()
        assert out.shape[1] == len(ids) + count
        return time.perf_counter() - began

    began = time.perf_counter()
    for _ in range(2):
        generate(tokens)
    warm_up = time.perf_counter() - began
    times = sorted(generate(tokens) - generate(1) for _ in range(3))
    return {"tokens/s": (tokens - 1) / times[1], "ms a step": times[1] / (tokens - 1) * 1e3, "warm-up s": warm_up}


def transformers_model(checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> Any:
    """transformers' model with a checkpoint's weights.

    Raises:
        ImportError: transformers is not installed.
        NotPossibleHere: it is another architecture than Qwen2.
    """
    from transformers import Qwen2Config, Qwen2ForCausalLM

    c = checkpoint.config
    if c.backbone != "qwen2" or c.diffusion is not None:
        raise NotPossibleHere(f"the baseline is for Qwen2, not for {c.family}")
    tied = not checkpoint.has_tensor("lm_head.weight")
    settings = Qwen2Config(
        vocab_size=c.vocab_size, hidden_size=c.hidden, intermediate_size=c.intermediate, num_hidden_layers=c.layers,
        num_attention_heads=c.heads, num_key_value_heads=c.kv_heads, max_position_embeddings=c.context_length,
        rms_norm_eps=c.norm_eps, tie_word_embeddings=tied, dtype=dtype,
        rope_theta=float(checkpoint.rope().frequencies[1] ** (-c.head_dim / 2)),
    )  # fmt: skip
    with device:
        model = Qwen2ForCausalLM(settings).to(dtype).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(checkpoint.tensor(name.removeprefix("model.")))
    return model
