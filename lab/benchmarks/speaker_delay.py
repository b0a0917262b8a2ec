"""How much completions delay a speaker: the time to the first clause of spoken responses, alone and beside other work.

    python -m lab.benchmarks.speaker_delay [--model NAME] [--turns 12]

A turn reads the words ahead as they are recognized, then asks for the response; the clock runs from there to the end of
the first clause, and between clauses. Every question is asked under each load, one after another, so that all loads
meet the same state of the machine. Recognition and synthesis are not part of it.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from agent.instructions import INSTRUCTIONS
from chat.types import Ask, Message
from lab.benchmarks.needle import haystack
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.hub.catalog import QWEN_05B
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine
from voice.clauses import ClauseSplitter

_QUESTIONS = (
    "Could you tell me how long pasta has to be cooked?", "What should I see in Lisbon on a rainy day?",
    "Why is the sky red in the evening?", "How do I get a wine stain out of a white shirt?",
    "Which planet has the most moons?", "What is a good present for my grandmother?",
    "How far is it from Berlin to Munich by train?", "Can you explain what inflation means?",
    "What do bees do in winter?", "How often should I water a cactus?",
    "Who wrote the first detective story?", "What helps against hiccups?",
)  # fmt: skip

_WORDS_READ_AT_ONCE, _SECONDS_BETWEEN_READS = 3, 0.4
"""How the words of a speaker arrive."""

_CLAUSES = 3
"""Clauses of a response that are timed."""

_COMPLETIONS = 2
"""Completions at a time."""

_LONG_PROMPT_TOKENS = 4000


@dataclass
class Delays:
    """Milliseconds, one entry for each turn or clause."""

    first_clause: list[float] = field(default_factory=list)
    next_clause: list[float] = field(default_factory=list)


async def turn(engine: Engine, question: str, delays: Delays) -> None:
    """A spoken question and the first clauses of its response."""
    conversation, words = Conversation(engine), question.split()
    system = Message("system", INSTRUCTIONS)
    for end in range(_WORDS_READ_AT_ONCE, len(words), _WORDS_READ_AT_ONCE):
        conversation.prepare(Ask([system, Message("user", " ".join(words[:end]))]))
        await asyncio.sleep(_SECONDS_BETWEEN_READS)
    began, splitter, found = time.perf_counter(), ClauseSplitter(), 0
    async for progress in conversation.reply(Ask([system, Message("user", question)], max_tokens=80)):
        for _ in splitter.push(progress.committed):
            now = time.perf_counter()
            (delays.next_clause if found else delays.first_clause).append(1000 * (now - began))
            began, found = now, found + 1
        if found >= _CLAUSES:
            break


async def completions(engine: Engine) -> None:
    """Programs that write: a few long completions at a time, without end."""

    async def write(number: int) -> None:
        while True:
            message = Message("user", f"Write a long story about the number {number}.")
            async for _ in Conversation(engine, background=True).reply(Ask([message], max_tokens=400)):
                pass
            number += _COMPLETIONS

    await asyncio.gather(*(write(number) for number in range(_COMPLETIONS)))


async def long_prompts(engine: Engine) -> None:
    """A program that sends prompts of 4K tokens, one after another."""
    tokenizer = engine.model.tokenizer
    prompts = [haystack(tokenizer, min(_LONG_PROMPT_TOKENS, engine.context - 80), 0.5, seed)[0] for seed in range(4)]
    while True:
        message = Message("user", f"{random.random()} {random.choice(prompts)}")
        async for _ in Conversation(engine, background=True, keep_all_messages=True).reply(
            Ask([message], max_tokens=8)
        ):
            pass


Load = Callable[[Engine], Awaitable[None]]

LOADS: dict[str, Load | None] = {"alone": None, "beside completions": completions, "beside 4K prompts": long_prompts}


async def measure(engine: Engine, turns: int) -> dict[str, Delays]:
    """The delays under each load."""
    delays = {name: Delays() for name in LOADS}
    await turn(engine, "Are you there, and can you hear me?", Delays())
    for number in range(turns):
        for name, load in LOADS.items():
            other = None if load is None else asyncio.ensure_future(load(engine))
            await asyncio.sleep(1.0)  # the load has begun: background requests wait half a second after a speaker's
            await turn(engine, _QUESTIONS[number % len(_QUESTIONS)], delays[name])
            if other is not None:
                other.cancel()
                with suppress(asyncio.CancelledError):
                    await other
    return delays


def main(model: str = QWEN_05B.name, turns: int = 12) -> None:
    """Measure and report."""
    engine = load_engine(ModelOptions(model=model), Console(stderr=True))
    delays = asyncio.run(measure(engine, turns))
    engine.close()
    columns = [f"{what} clause, ms {share}" for what in ("first", "next") for share in ("p50", "p95")]
    table = Table("load", "turns", *columns)
    for name, found in delays.items():
        figures = [np.percentile(part, share) for part in (found.first_clause, found.next_clause) for share in (50, 95)]
        table.add_row(name, str(len(found.first_clause)), *(f"{figure:.0f}" for figure in figures))
    Console(width=120).print(table)


if __name__ == "__main__":
    typer.run(main)
