"""How long a typed decision takes, and whether it is right: yes or no, one of several choices, a number.

    python -m benchmarks.decisions [--model NAME] [--repeats 20]

The instructions have been read before, as on a server that decides the same thing about every call; the input is new.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import asyncio
import time
from dataclasses import dataclass

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from model.engine.decision import Decider
from model.engine.engine import Engine
from model.hub.catalog import QWEN_05B
from server.chat_completions.decide import DecideRequest, decision_prompt
from server.deploy.runtime import ModelOptions, load_engine


@dataclass(frozen=True)
class _Task:
    """A decision, and inputs with the right answer."""

    request: dict[str, object]
    inputs: tuple[tuple[str, object], ...]


_TASKS = {
    "yes or no": _Task(
        {"type": "boolean", "instructions": "Does the caller want to talk to a person?"},
        (
            ("Let me speak to somebody, please.", True), ("What are your opening hours?", False),
            ("I do not want a machine, give me an agent.", True), ("Cancel my order, please.", False),
        ),
    ),
    "one of five": _Task(
        {
            "type": "choice",
            "choices": ["billing", "technical support", "new contract", "moving house", "something else"],
            "instructions": "You route calls of a telephone company.",
        },
        (
            ("My router keeps losing the connection.", "technical support"),
            ("There is a charge on my bill that I do not understand.", "billing"),
            ("We move to another city next month.", "moving house"),
            ("I would like to become a customer.", "new contract"),
        ),
    ),
    "number from 1 to 10": _Task(
        {
            "type": "number", "minimum": 1, "maximum": 10,
            "instructions": "How satisfied is the customer, from 1 (angry) to 10 (delighted)?",
        },
        (
            ("This is the worst service that I have ever had.", range(1, 4)),
            ("Thank you so much, that was wonderful!", range(7, 11)),
            ("I hate this, nothing works and nobody helps.", range(1, 5)),
            ("Perfect, everything works again.", range(6, 11)),
        ),
    ),
}  # fmt: skip


async def decide(engine: Engine, body: DecideRequest) -> tuple[object, float]:
    """The decision and the milliseconds that it took."""
    prompt = decision_prompt(body)
    began = time.perf_counter()
    scores = await Decider(engine, keep_all_messages=True).score(prompt.messages, prompt.options)
    elapsed = 1000 * (time.perf_counter() - began)
    return prompt.best(scores.probabilities), elapsed


async def measure(engine: Engine, task: _Task, repeats: int) -> tuple[list[float], int]:
    """Milliseconds of each decision, and how many inputs were decided rightly."""
    elapsed, right = list[float](), 0
    for number in range(-1, repeats):  # the first one reads the instructions
        for text, expected in task.inputs:
            asked = text if number <= 0 else f"{text} (call {number})"
            value, milliseconds = await decide(engine, DecideRequest.model_validate({**task.request, "input": asked}))
            if number >= 0:
                elapsed.append(milliseconds)
            if number == 0:
                right += value in expected if isinstance(expected, range) else value == expected
    return elapsed, right


def main(model: str = QWEN_05B.name, repeats: int = 20) -> None:
    """Measure and report."""
    engine = load_engine(ModelOptions(model=model), Console(stderr=True))
    table = Table("decision", "ms p50", "ms p95", "right")
    for name, task in _TASKS.items():
        elapsed, right = asyncio.run(measure(engine, task, repeats))
        p50, p95 = np.percentile(elapsed, (50, 95))
        table.add_row(name, f"{p50:.0f}", f"{p95:.0f}", f"{right} of {len(task.inputs)}")
    Console().print(table)
    engine.close()


if __name__ == "__main__":
    typer.run(main)
