"""How long responses are at each verbosity, on ten questions.

python -m lab.benchmarks.verbosity [--model NAME] [--show]
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import asyncio
import statistics

import typer
from rich.console import Console
from rich.table import Table

from chat.types import Ask, Message
from model.engine.engine import Engine
from model.hub.catalog import QWEN_05B
from server.chat_completions.generation import Choice, collect, generate, new_conversation
from server.chat_completions.schema import Verbosity
from server.chat_completions.verbosity import with_verbosity
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine

_QUESTIONS = (
    "What is a lighthouse?", "Why is the sky blue?", "How do I make bread?", "What does a compiler do?",
    "Who was Marie Curie?", "What is inflation?", "How do vaccines work?",
    "What is the difference between TCP and UDP?",
    "Why do leaves fall in autumn?", "How can I sleep better?",
)  # fmt: skip

_VERBOSITIES: tuple[Verbosity, ...] = ("low", "medium", "high")

_MAX_TOKENS = 700


async def respond(engine: Engine, question: str, verbosity: Verbosity) -> Choice:
    """The response to a question."""
    ask = Ask(with_verbosity([Message("user", question)], verbosity), max_tokens=_MAX_TOKENS)
    return await collect(generate(new_conversation(engine).reply(ask)))


def main(model: str = QWEN_05B.name, show: bool = False) -> None:
    """Measure and report."""
    console, engine = Console(), load_engine(ModelOptions(model=model), Console(stderr=True))
    tokens: dict[Verbosity, list[int]] = {verbosity: [] for verbosity in _VERBOSITIES}
    for question in _QUESTIONS:
        for verbosity in _VERBOSITIES:
            choice = asyncio.run(respond(engine, question, verbosity))
            tokens[verbosity].append(choice.usage.completion_tokens)
            if show:
                console.print(f"[{verbosity}] {question}\n{choice.text}\n", markup=False)
    engine.close()
    table = Table("verbosity", "tokens, median", "least", "most", "longer than the one before")
    before = [0] * len(_QUESTIONS)
    for verbosity, lengths in tokens.items():
        longer = sum(one > other for one, other in zip(lengths, before, strict=True))
        table.add_row(
            verbosity, f"{statistics.median(lengths):.0f}", str(min(lengths)), str(max(lengths)),
            f"{longer} of {len(lengths)}" if verbosity != "low" else "",
        )  # fmt: skip
        before = lengths
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
