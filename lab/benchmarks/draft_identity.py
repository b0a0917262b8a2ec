"""Checks that greedy text is identical to the base model's, with any drafts and any number of conversations in a batch.

    python -m lab.benchmarks.draft_identity [PROMPTS] [CONVERSATIONS] [LENGTH] [MODEL] [--drafts KIND]

Every prompt is answered twice: with one token per forward pass by a single conversation, and with drafts by several
CONVERSATIONS that share forward passes. LENGTH is the number of drafts of each, or `adaptive`; KIND is what drafts, as
in `rejoinder serve --drafts`. Prints how many responses are identical, and those that differ.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import asyncio
import itertools
import sys
import time
from collections.abc import Sequence
from typing import get_args

from rich.console import Console
from rich.progress import track

from agent.instructions import INSTRUCTIONS
from chat.types import Ask, Message
from lab.convert.evaluate import evaluation_prompts
from lab.convert.prompts import PERSONAS
from model.decode.draft_length import DraftLengthController
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import Drafts
from model.hub.catalog import QWEN_05B
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine

MAX_TOKENS = 32


class FixedDraftLength(DraftLengthController):
    """Always drafts the same number of tokens, whether or not that is worth its cost."""

    def __init__(self, adaptive: DraftLengthController, drafts: int) -> None:
        super().__init__({1: 1.0}, drafts, adaptive.acceptance)
        self._drafts = drafts

    def num_drafts(self, conversations: int = 1, num_copied: int = 0) -> int:
        return self._drafts

    def worth_drafting(self, confidence: Sequence[float], others: int = 1, conversations: int = 1) -> bool:
        return len(confidence) < self._drafts

    def denoising_steps(self, most: int, conversations: int = 1) -> int:
        return most


def build_prompts(count: int) -> list[list[Message]]:
    """The evaluation's prompts without tools, for one persona after the other."""
    pairs = itertools.product(
        (INSTRUCTIONS, *PERSONAS), (prompt for prompt in evaluation_prompts() if not prompt.tools)
    )
    return [
        [Message("system", persona), Message("user", prompt.text)] for persona, prompt in itertools.islice(pairs, count)
    ]


async def respond(engine: Engine, messages: list[Message], drafting: bool) -> tuple[str, int, int]:
    """Text, tokens and forward passes of one response."""
    text, tokens, steps = "", 0, 0
    async for progress in Conversation(engine, drafting=drafting).reply(Ask(messages, max_tokens=MAX_TOKENS)):
        text, tokens, steps = text + progress.committed, progress.tokens, progress.step
    return text, tokens, steps


async def run(engine: Engine, count: int, concurrency: int) -> None:
    """Answer every prompt both ways, alternating, so that background load affects both equally."""
    prompts = build_prompts(count)
    identical = tokens = steps = 0
    drafted_s = alone_s = 0.0
    for start in track(range(0, len(prompts), concurrency), console=Console(stderr=True)):
        group = prompts[start : start + concurrency]
        began = time.perf_counter()
        drafted = await asyncio.gather(*(respond(engine, messages, True) for messages in group))
        middle = time.perf_counter()
        alone = [await respond(engine, messages, False) for messages in group]
        drafted_s += middle - began
        alone_s += time.perf_counter() - middle
        for messages, ours, base in zip(group, drafted, alone, strict=True):
            identical += ours[0] == base[0]
            tokens, steps = tokens + ours[1], steps + ours[2]
            if ours[0] != base[0]:
                print(f"differs: {messages[-1].content!r}\n  drafted {ours[0]!r}\n  alone   {base[0]!r}", flush=True)
        print(f"identical so far: {identical} of {start + len(group)}", file=sys.stderr, flush=True)
    print(
        f"identical: {identical} of {len(prompts)}; tokens per forward {tokens / steps:.3f}; concurrency {concurrency}"
    )
    print(f"tokens/s: {tokens / drafted_s:.1f} drafted, including prefill; {tokens / alone_s:.1f} alone")


def main() -> None:
    """Run with the arguments of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("prompts", nargs="?", type=int, default=500)
    parser.add_argument("conversations", nargs="?", type=int, default=4)
    parser.add_argument("length", nargs="?", default="adaptive")
    parser.add_argument("model", nargs="?", default=QWEN_05B.name)
    parser.add_argument("--drafts", choices=get_args(Drafts), default="auto")
    arguments = parser.parse_args()
    engine = load_engine(ModelOptions(model=arguments.model, drafts=arguments.drafts), Console(stderr=True))
    if arguments.length != "adaptive":
        engine.draft_length = FixedDraftLength(engine.draft_length, int(arguments.length))
    try:
        asyncio.run(run(engine, arguments.prompts, arguments.conversations))
    finally:
        engine.close()


if __name__ == "__main__":
    main()
