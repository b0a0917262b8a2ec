"""Denoising steps: how many a block drafter takes at each effort, and quality and speed of unverified block decoding.

    python -m lab.benchmarks.denoising_steps [PROMPTS] [MODEL] [--verified]

For speculative decoding at each effort, and, unless `--verified` leaves them out, for blocks of an adapter in one to
eight steps: tokens per forward pass and per second, responses that are identical to the base model's, how unlikely the
base model finds the generated text (nats per token), and how often a block drafter drafted in one step, in two, …
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import asyncio
import time

from rich.console import Console
from rich.table import Table

from agent.instructions import INSTRUCTIONS
from chat.types import Ask, Effort, Message
from lab.convert.evaluate import evaluation_prompts
from model.decode.effort import EFFORTS
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import LoadedModel
from model.hub.catalog import QWEN_05B
from model.nn.cpu.block_drafter import BlockQuantizedDrafter
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine

MAX_TOKENS = 64
STEPS = (1, 2, 3, 4, 8)


async def respond(engine: Engine, prompt: str, effort: Effort, max_steps: int | None) -> tuple[str, int, int, float]:
    """Text, tokens, forward passes and seconds of one response."""
    messages = [Message("system", INSTRUCTIONS), Message("user", prompt)]
    began, text, tokens, steps = time.perf_counter(), "", 0, 0
    stream = Conversation(engine).reply(Ask(messages, max_tokens=MAX_TOKENS, effort=effort, max_steps=max_steps))
    async for progress in stream:
        text, tokens, steps = text + progress.committed, progress.tokens, progress.step
    return text, tokens, steps, time.perf_counter() - began


def nats_per_token(model: LoadedModel, prompt: str, text: str) -> float:
    """Negative log-likelihood per token that the base model gives to `text` as a response."""
    messages = [Message("system", INSTRUCTIONS), Message("user", prompt)]
    ids = model.template.encode(messages)
    tokens = model.tokenizer.encode(text)
    if not tokens:
        return 0.0
    logits = model.decoder.forward([*ids, *tokens], model.decoder.new_cache(), logits="all")
    log_probabilities = logits[len(ids) - 1 : -1].log_softmax(-1)
    return float(-sum(row[token] for row, token in zip(log_probabilities, tokens, strict=True)) / len(tokens))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("prompts", nargs="?", type=int, default=40)
    parser.add_argument("model", nargs="?", default=QWEN_05B.name)
    parser.add_argument("--verified", action="store_true", help="speculative decoding only")
    arguments = parser.parse_args()
    prompts = [prompt.text for prompt in evaluation_prompts() if prompt.kind == "chat"][: arguments.prompts]
    console = Console(width=120)
    table = Table(
        "decoding", "tokens per forward", "tokens/s", "as the base model", "nats per token", "drafted in steps"
    )
    base_texts: list[str] = []
    engines = [verified := load_engine(ModelOptions(model=arguments.model), console)]
    runs: list[tuple[str, Engine, Effort, int | None]] = [(f"{one} effort", verified, one, None) for one in EFFORTS]
    try:
        if not arguments.verified:
            engines.append(blocks := load_engine(ModelOptions(model=arguments.model, decoding="blocks"), console))
            runs += [(f"blocks, {n} steps", blocks, "high", n) for n in STEPS]
        for name, engine, effort, steps in runs:
            drafter = engine.model.draft_head
            taken = drafter.steps_taken if isinstance(drafter, BlockQuantizedDrafter) else {}
            taken.clear()
            results = [asyncio.run(respond(engine, prompt, effort, steps)) for prompt in prompts]
            texts = [result[0] for result in results]
            base_texts = base_texts or texts
            nats = [
                verified.call(lambda loaded, prompt=prompt, text=text: nats_per_token(loaded, prompt, text))  # type: ignore[misc]
                for prompt, text in zip(prompts, texts, strict=True)
            ]
            table.add_row(
                name,
                f"{sum(result[1] for result in results) / sum(result[2] for result in results):.2f}",
                f"{sum(result[1] for result in results) / sum(result[3] for result in results):.1f}",
                f"{sum(a == b for a, b in zip(texts, base_texts, strict=True))} of {len(base_texts)}",
                f"{sum(nats) / len(nats):.3f}",
                ", ".join(f"{n}: {times}" for n, times in sorted(taken.items())),
            )
    finally:
        for engine in engines:
            engine.close()
    console.print(table)


if __name__ == "__main__":
    main()
