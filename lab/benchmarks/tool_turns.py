"""What a function call adds to a spoken turn, over loopback, with the real models.

    python -m lab.benchmarks.tool_turns --model qwen2.5-coder-0.5b

The same spoken questions in three kinds of session that take turns: without functions; with functions on offer, of
which none must be called; and with a call required, whose result the client returns at once. Every turn has a
conversation of its own. The latency is from the last sample of the question to the first audible sample of the answer.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from lab.benchmarks.spoken_turn import SpokenTurn, record, speak
from lab.report.own_server import own_server

_INSTRUCTIONS = "You are a friendly voice assistant. Answer in one or two short sentences."
"""A client that brings functions brings instructions, too."""


@dataclass(frozen=True)
class Question:
    """A question, the function that answers it, and what that function returns."""

    text: str
    function: str
    output: str


QUESTIONS = (
    Question("What is the weather like in Lisbon today?", "get_weather", "It is sunny in Lisbon, twenty-four degrees."),
    Question("What time is it in Toronto right now?", "get_time", "It is a quarter past nine in Toronto."),
    Question(
        "How much does a train ticket to Vienna cost?", "get_price", "A train ticket to Vienna costs forty euros."
    ),
    Question("Is it cold in Helsinki this evening?", "get_weather", "It is two degrees below zero in Helsinki."),
    Question("How late is it in Nairobi?", "get_time", "It is half past four in Nairobi."),
    Question(
        "What is the price of a ferry ticket to Dover?", "get_price", "A ferry ticket to Dover costs thirty pounds."
    ),
)


def _function(name: str, description: str, argument: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "name": name, "description": description, "parameters": parameters}


FUNCTIONS = [
    _function("get_weather", "The weather in a city now", "city"),
    _function("get_time", "The time in a city now", "city"),
    _function("get_price", "The price of an article or a ticket", "article"),
]

KINDS: dict[str, dict[str, Any]] = {
    "no functions": {},
    "functions on offer": {"tools": FUNCTIONS, "tool_choice": "auto"},
    "call required": {"tools": FUNCTIONS, "tool_choice": "required"},
}


@dataclass(frozen=True)
class Turn:
    """One turn of one kind of session."""

    kind: str
    question: str
    spoken: SpokenTurn


async def measure(url: str, rounds: int) -> list[Turn]:
    """Every question in every kind of session, `rounds` times. The first turn of each kind, which reads the prompt for
    the first time, is not measured."""
    recordings = record(question.text for question in QUESTIONS)

    async def turn(kind: str, question: Question) -> Turn:
        session = {"instructions": _INSTRUCTIONS, **KINDS[kind]}
        return Turn(kind, question.text, await speak(url, recordings[question.text], session, question.output))

    for kind in KINDS:
        await turn(kind, QUESTIONS[0])
    turns = []
    for _ in range(rounds):
        for question in QUESTIONS:
            for kind in KINDS:
                turns.append(await turn(kind, question))
                print(json.dumps(asdict(turns[-1])), flush=True)
    return turns


def report(turns: Sequence[Turn]) -> str:
    """The table: latencies of each kind, and how much longer its turns took than those without functions."""
    by_kind: dict[str, list[SpokenTurn]] = defaultdict(list)
    for turn in turns:
        by_kind[turn.kind].append(turn.spoken)
    plain = np.array([turn.latency_ms for turn in by_kind["no functions"]])
    lines = [
        "| session | n | called | latency, median | p95 | more than without, median of pairs |",
        "|---|---|---|---|---|---|",
    ]
    for kind, own in by_kind.items():
        latencies = np.array([turn.latency_ms for turn in own])
        called = [turn.called_ms for turn in own if turn.called_ms is not None]
        after = f"{len(called)}" + (f", after {median(called):.0f} ms" if called else "")
        lines.append(
            f"| {kind} | {len(own)} | {after} | {median(latencies):.0f} ms | {np.percentile(latencies, 95):.0f} ms | "
            f"{np.median(latencies - plain):+.0f} ms |"
        )
    return "\n".join(lines)


async def run(rounds: int, server_options: Sequence[str]) -> list[Turn]:
    """Start a server and measure."""
    async with own_server(server_options) as url:
        return await measure(url, rounds)


def main() -> None:
    """Parse the arguments and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--rounds", type=int, default=2, help=f"each asks {len(QUESTIONS)} questions in {len(KINDS)} ways"
    )
    options, server_options = parser.parse_known_args()
    print(report(asyncio.run(run(options.rounds, server_options))), file=sys.stdout)


if __name__ == "__main__":
    main()
