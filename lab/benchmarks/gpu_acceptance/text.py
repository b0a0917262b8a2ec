"""Real weights: the device's text equals a CPU's.

A device in bfloat16 may choose another token where a CPU in float32 finds two nearly tied. Where a text leaves the
CPU's, the CPU's own logits tell whether it was such a tie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from chat.types import Message
from lab.benchmarks.gpu_acceptance.answers import SYSTEM, ask, holds, running
from lab.benchmarks.gpu_acceptance.context import Context
from lab.benchmarks.gpu_acceptance.weights import models, precision
from lab.convert.batch_generation import Prompt, generate
from lab.convert.evaluate import evaluation_prompts
from model.engine.loader import LoadedModel, load_model

_PROMPTS, _TOKENS = 20, 48

_TIE = 0.25
"""Difference of two logits up to which bfloat16 may swap them: it has 8 bits, logits are around 20, and a sum over all
layers rounds several times. Wrong kernels differ by whole units."""

_CANDIDATES = 8


def run(context: Context) -> None:
    """Run the stage."""
    for path in models(context):
        context.check(f"{path.stem}: text of {_PROMPTS} prompts", lambda p=path: equal_text(context, p))


def questions(count: int) -> list[str]:
    """Prompts of the evaluation, of all kinds without tools."""
    prompts = [prompt.text for prompt in evaluation_prompts() if not prompt.tools]
    return prompts[:: len(prompts) // count][:count]


def equal_text(context: Context, path: Path) -> Mapping[str, Any]:
    """Answers with what drafts for these weights, and with whole steps replayed, against a CPU's greedy text."""
    count, tokens = (_PROMPTS, _TOKENS) if context.on_gpu else (4, 12)
    asked = questions(count)
    model = load_model(path, device=str(context.device), precision=precision(context))
    with running(model, max_slots=1) as engine:
        found = [ask(engine, question, tokens) for question in asked]
        steps, made = sum(one.steps for one in found), sum(one.tokens for one in found)
    del model, engine
    reference = load_model(path, device="cpu", precision="float32", adapter="none")
    prompts = [reference.template.encode([SYSTEM, Message("user", question)]) for question in asked]
    outputs = generate(
        reference.decoder, [Prompt(tuple(prompt), tokens) for prompt in prompts], reference.stop_tokens,
        batch_size=count, seed=0,
    )  # fmt: skip
    gaps = [
        gap(reference, prompt, output, one.text)
        for prompt, output, one in zip(prompts, outputs, found, strict=True)
    ]  # fmt: skip
    differing = [value for value in gaps if value is not None]
    holds(
        all(value <= _TIE for value in differing),
        lambda: (
            f"{sum(value > _TIE for value in differing)} of {count} texts differ without a tie: by {max(differing):.2f}"
        ),
    )
    return {
        "equal": count - len(differing),
        "of": count,
        "left the CPU's text at a tie": len(differing),
        "largest tie": max(differing, default=0.0),
        "tokens": made,
        "tokens a step": made / max(1, steps),
    }


def gap(model: LoadedModel, prompt: Sequence[int], output: Sequence[int], text: str) -> float | None:
    """By how much the CPU preferred its own token where a text leaves the CPU's; None if it does not, ∞ if the text
    goes on with none of the CPU's likeliest tokens."""
    tokens = [token for token in output if token not in model.stop_tokens]
    decode = model.tokenizer.decode
    text = _whole(text)
    if _whole(decode(tokens)) == text:
        return None
    at = next((n for n in range(len(tokens)) if not text.startswith(_whole(decode(tokens[: n + 1])))), len(tokens))
    with torch.inference_mode():
        logits = model.decoder.forward([*prompt, *tokens[:at]], model.decoder.new_cache(), logits="last")[-1].float()
    own = float(logits[tokens[at]] if at < len(tokens) else logits.max())
    before = _whole(decode(tokens[:at]))
    for value, token in zip(*(part.tolist() for part in logits.topk(_CANDIDATES)), strict=True):
        ends = token in model.stop_tokens and text == before
        goes_on = token not in model.stop_tokens and text.startswith(_whole(decode([*tokens[:at], token])))
        if (at == len(tokens) or token != tokens[at]) and (ends or (goes_on and text != before)):
            return own - value
    return float("inf")


def _whole(text: str) -> str:
    """Without a character whose last bytes are in a later token."""
    return text.rstrip("\ufffd")
