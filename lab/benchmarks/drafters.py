"""What drafts best: a block drafter, a recurrent head, an adapter's masks, or nothing.

    python -m lab.benchmarks.drafters [PROMPTS] [MODEL] [--drafts KIND …] [--rounds N] [--adapter FILE]

PROMPTS of the evaluation of each kind are answered with each choice in turn, by engines in one process, after a round
with one token a forward pass. JSON follows no schema, tool calls are required, and programs follow their grammar.
Prints tokens per second after the forward pass that yields the first token, tokens per forward pass, the median time
from a question to the first clause, and how many texts are identical; and of each choice the geometric mean of its
tokens per second over the kinds, relative to the recurrent head.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import asyncio
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lab.benchmarks.drafting import Response, prompts_of, respond
from lab.convert.corpus import is_looping
from lab.convert.evaluate import EvaluationPrompt
from model.engine.engine import Engine
from model.engine.loader import Drafts
from model.hub.catalog import QWEN_05B
from server.serving.runtime import ModelOptions, load_engine

KINDS = {"chat": "chat", "JSON": "json", "tool calls": "tool", "programs": "program"}


async def answer(engine: Engine, kind: str, prompts: Sequence[EvaluationPrompt], drafts: Drafts) -> list[Response]:
    """Answer some prompts."""
    way = "forced" if drafts == "none" else "drafts"
    return [await respond(engine, kind, prompt, way, number) for number, prompt in enumerate(prompts)]


def first_clause(responses: Sequence[Response]) -> str:
    """Median milliseconds from the question to the first clause."""
    seconds = [one.first_clause for one in responses if one.first_clause is not None]
    return f"{1000 * statistics.median(seconds):.0f}" if seconds else ""


def speed(responses: Sequence[Response]) -> float:
    """Tokens per second."""
    return sum(one.tokens for one in responses) / sum(one.seconds for one in responses)


async def run(engines: dict[Drafts, Engine], count: int, rounds: int, console: Console) -> None:
    """Answer the prompts of all kinds with each engine, and print the figures."""
    table = Table(
        "kind", "drafts", "tokens/s of each round", "median", "tokens per pass", "first clause, ms", "identical"
    )
    speeds: dict[Drafts, list[float]] = {drafts: [] for drafts in engines}
    for kind, name in KINDS.items():
        prompts = prompts_of(name, count)
        plain = await answer(next(iter(engines.values())), kind, prompts, "none")
        usable = [
            n for n, one in enumerate(plain)
            if one.steps and not is_looping(next(iter(engines.values())).model.tokenizer.encode(one.text))
        ]  # fmt: skip
        found: dict[Drafts, list[list[Response]]] = {drafts: [] for drafts in engines}
        for _ in range(rounds):
            for drafts, engine in engines.items():
                responses = await answer(engine, kind, [prompts[n] for n in usable], drafts)
                found[drafts].append(responses)
        undrafted = [plain[n] for n in usable]
        one_token = f"{speed(undrafted):.1f}"
        table.add_row(kind, "one token", one_token, one_token, "1.00", first_clause(undrafted), "")
        for drafts, each in found.items():
            rates = [speed(responses) for responses in each]
            speeds[drafts].append(statistics.median(rates))
            tokens, steps = (sum(getattr(one, name) for one in each[-1]) for name in ("tokens", "steps"))
            identical = sum(one.text == plain[n].text for one, n in zip(each[-1], usable, strict=True))
            table.add_row(
                kind, drafts, ", ".join(f"{rate:.1f}" for rate in rates), f"{speeds[drafts][-1]:.1f}",
                f"{tokens / steps:.2f}", first_clause([one for round in each for one in round]),
                f"{identical} of {len(usable)}",
            )  # fmt: skip
    console.print(table)
    for drafts, each in speeds.items():
        acceptance = ", ".join(f"{rate:.2f}" for rate in engines[drafts].draft_length.acceptance)
        line = f"{drafts}: geometric mean {math.prod(each) ** (1 / len(each)):.1f} tokens/s"
        if "recurrent" in speeds:
            ratios = [one / other for one, other in zip(each, speeds["recurrent"], strict=True)]
            line += f", {math.prod(ratios) ** (1 / len(ratios)):.3f} of the recurrent head's, least {min(ratios):.3f}"
        console.print(f"{line}; accepted lately {acceptance}")


def main() -> None:
    """Run with the arguments of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("prompts", nargs="?", type=int, default=30)
    parser.add_argument("model", nargs="?", default=QWEN_05B.name)
    parser.add_argument("--drafts", action="append", choices=("diffusion", "recurrent", "masked", "none"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--adapter", type=Path, help="the file of the block drafter; default: the bundled one")
    arguments = parser.parse_args()
    engines: dict[Drafts, Engine] = {}
    try:
        for drafts in arguments.drafts or ("diffusion", "recurrent", "none"):
            adapter = arguments.adapter if arguments.adapter and drafts == "diffusion" else "auto"
            options = ModelOptions(model=arguments.model, adapter=adapter, drafts=drafts)
            engines[drafts] = load_engine(options, Console(stderr=True))
        asyncio.run(run(engines, arguments.prompts, arguments.rounds, Console(width=180)))
    finally:
        for engine in engines.values():
            engine.close()


if __name__ == "__main__":
    main()
