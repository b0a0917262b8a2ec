"""What each further pass buys where blocks are denoised and nobody checks them.

    python -m tests.bench.passes [PROMPTS] [MODEL]

For one to eight passes a block, and for verified decoding: tokens a forward and a second, answers that are the base
model's to the letter, and how surprised the base model is by what was written (nats a token).
"""

from __future__ import annotations

import asyncio
import sys
import time

from rich.console import Console
from rich.table import Table

from model.chat import TextMessage
from model.convert.evaluate import questions
from model.engine import Engine, LoadedModel
from server.loading import DEFAULT_MODEL, Choice, load_engine
from voice.persona import INSTRUCTIONS

MOST_TOKENS = 64
STEPS = (1, 2, 3, 4, 8)


async def answer(engine: Engine, said: str, max_steps: int | None) -> tuple[str, int, int, float]:
    """Text, tokens, passes and seconds of one answer."""
    messages = [TextMessage("system", INSTRUCTIONS), TextMessage("user", said)]
    began, text, tokens, steps = time.perf_counter(), "", 0, 0
    stream = engine.conversation().reply(messages, max_tokens=MOST_TOKENS, effort="high", max_steps=max_steps)
    async for progress in stream:
        text, tokens, steps = text + progress.committed, progress.tokens, progress.step
    return text, tokens, steps, time.perf_counter() - began


def surprise(model: LoadedModel, said: str, text: str) -> float:
    """Nats a token that the base model gives to `text` as an answer."""
    messages = [TextMessage("system", INSTRUCTIONS), TextMessage("user", said)]
    ids = model.template.encode(messages)
    written = model.tokenizer.encode(text)
    if not written:
        return 0.0
    logits = model.decoder.forward([*ids, *written], model.decoder.new_cache(), logits="all")
    logs = logits[len(ids) - 1 : -1].log_softmax(-1)
    return float(-sum(row[token] for row, token in zip(logs, written, strict=True)) / len(written))


def main() -> None:
    """Measure and print."""
    count, model = [*sys.argv[1:], *("40", DEFAULT_MODEL)[len(sys.argv) - 1 :]]
    asked = [question.said for question in questions() if question.kind == "chat"][: int(count)]
    console = Console()
    table = Table("decoding", "tokens per forward", "tokens/s", "as the base model", "nats a token")
    base: list[str] = []
    verified = load_engine(Choice(model), console)
    blocks = load_engine(Choice(model, decoding="blocks"), console)
    try:
        for name, engine, steps in [("verified", verified, None), *((f"{n} passes", blocks, n) for n in STEPS)]:
            rows = [asyncio.run(answer(engine, said, steps)) for said in asked]
            texts = [row[0] for row in rows]
            base = base or texts
            nats = [
                verified.call(lambda loaded, said=said, text=text: surprise(loaded, said, text))  # type: ignore[misc]
                for said, text in zip(asked, texts, strict=True)
            ]
            table.add_row(
                name,
                f"{sum(row[1] for row in rows) / sum(row[2] for row in rows):.2f}",
                f"{sum(row[1] for row in rows) / sum(row[3] for row in rows):.1f}",
                f"{sum(a == b for a, b in zip(texts, base, strict=True))} of {len(base)}",
                f"{sum(nats) / len(nats):.3f}",
            )
    finally:
        verified.close()
        blocks.close()
    console.print(table)


if __name__ == "__main__":
    main()
