"""Finds a sentence in a long text: whether the model uses the whole context that it accepts, and what that takes.

    python -m lab.benchmarks.needle [--model NAME] [--lengths 4096 …] [--depths 0.5 …]

The text is sentences about invented places; one of them names a code, and the question asks for it.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import asyncio
import random
import resource
import statistics
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from chat.types import Ask, Message
from model.checkpoint.tokenizer import TextTokenizer
from model.engine.conversation import Conversation
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine

_PLACES = "Amber Birch Cedar Delta Ember Falcon Garnet Harbor Ivory Juniper Kestrel Lantern Maple Nickel Orchid".split()
_THINGS = "archive museum library station observatory garden theater bakery workshop lighthouse".split()

_FACTS = (
    "opens at nine in the morning", "was built by three brothers", "has a green door and two windows",
    "is closed on rainy days", "stands next to an old oak", "was painted blue last summer",
    "keeps letters that nobody has read", "welcomes visitors who like tea",
)  # fmt: skip

_TEMPLATE_TOKENS = 40
"""What the chat template adds, at most."""

RESPONSE_TOKENS = 64
"""Room that is left for the answer."""


def haystack(tokenizer: TextTokenizer, num_tokens: int, depth: float, seed: int = 0) -> tuple[str, str]:
    """A prompt of about `num_tokens`, and the number that answers its question.

    Args:
        depth: where the sentence with the answer is, from 0 (the beginning) to 1 (the end).
    """
    draw = random.Random(seed)
    place, thing, answer = draw.choice(_PLACES), draw.choice(_THINGS), draw.randrange(1000, 10_000)
    needle = f"The code of the {place} {thing} is {answer}."
    question = f"What is the code of the {place} {thing}? Answer with the code only."
    sentences, length = list[str](), len(tokenizer.encode(needle + question)) + _TEMPLATE_TOKENS
    while True:
        sentence = f"The {draw.choice(_PLACES)} {draw.choice(_THINGS)} {draw.choice(_FACTS)}."
        length += len(tokenizer.encode(" " + sentence))
        if length > num_tokens:
            break
        sentences.append(sentence)
    sentences.insert(round(depth * len(sentences)), needle)
    return f"{' '.join(sentences)}\n\n{question}", str(answer)


async def ask(conversation: Conversation, prompt: str) -> str:
    """The answer to a prompt."""
    progress = conversation.reply(Ask([Message("user", prompt)], max_tokens=RESPONSE_TOKENS))
    return "".join([step.committed async for step in progress])


def main(
    model: str = "qwen2.5-coder-0.5b",
    lengths: Annotated[list[int] | None, typer.Option(help="Tokens of the prompt; repeatable.")] = None,
    depths: Annotated[list[float] | None, typer.Option(help="Where the sentence is, 0 to 1; repeatable.")] = None,
) -> None:
    """Ask one question for each length and depth."""
    lengths, depths = lengths or [4096, 16_384, 32_768], depths or [0.1, 0.5, 0.9]
    engine = load_engine(ModelOptions(model=model, context=max(lengths)), Console(stderr=True))
    table = Table("tokens", *(f"depth {depth}" for depth in depths), "s a question, median", "peak memory, GB")
    for length in lengths:
        cells, seconds = list[str](), list[float]()
        for depth in depths:
            prompt, answer = haystack(engine.model.tokenizer, length - RESPONSE_TOKENS, depth)
            began = time.perf_counter()
            found = asyncio.run(ask(Conversation(engine, keep_all_messages=True), prompt))
            seconds.append(time.perf_counter() - began)
            cells.append("found" if answer in found else f"{found!r}, not {answer}")
            print(f"{length:,} tokens, depth {depth}: {cells[-1]} after {seconds[-1]:.1f} s", flush=True)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        table.add_row(f"{length:,}", *cells, f"{statistics.median(seconds):.1f}", f"{peak:.2f}")
    Console().print(table)
    engine.close()


if __name__ == "__main__":
    typer.run(main)
