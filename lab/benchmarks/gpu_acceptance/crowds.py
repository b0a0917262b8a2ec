"""Many conversations at once: tokens per second of all together, and how long the slowest waits for its first token."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from lab.benchmarks.gpu_acceptance.answers import Answer, answer, holds, running
from lab.benchmarks.gpu_acceptance.context import Context
from lab.benchmarks.gpu_acceptance.random_models import QWEN_05B, TINY, random_model
from model.engine.conversation import Conversation
from model.engine.engine import Engine


def run(context: Context) -> None:
    """Run the stage."""
    config, precision = (QWEN_05B, "bfloat16") if context.on_gpu else (TINY, "float32")
    crowds, tokens = ((2, 8, 16, 64), 40) if context.on_gpu else ((2, 4), 12)
    model = random_model(config, context.device, precision, 4, source=context.device)
    with running(model, context=1024) as engine:
        for size in crowds:
            context.check(f"{size} conversations", lambda s=size: crowd(engine, s, tokens))


def crowd(engine: Engine, size: int, tokens: int) -> Mapping[str, Any]:
    """This many conversations ask at the same time."""
    began = time.perf_counter()
    answers = asyncio.run(_answers(engine, size, tokens))
    seconds = time.perf_counter() - began
    for result in answers:
        holds(result.tokens == tokens, lambda r=result: f"an answer has {r.tokens} tokens instead of {tokens}")
    first = sorted(result.first_s for result in answers)
    steps = max(result.steps for result in answers)
    return {
        "tokens/s": size * tokens / seconds,
        "ms a step": seconds * 1e3 / steps,
        "first token ms, p50": first[len(first) // 2] * 1e3,
        "p95": first[int(len(first) * 0.95)] * 1e3,
    }


async def _answers(engine: Engine, size: int, tokens: int) -> list[Answer]:
    return list(
        await asyncio.gather(*(answer(Conversation(engine), f"Question {n} of {size}?", tokens) for n in range(size)))
    )
