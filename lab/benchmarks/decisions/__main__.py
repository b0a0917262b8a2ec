"""How long a typed decision takes, and whether it is right: yes or no, one of several choices, a number.

    python -m lab.benchmarks.decisions [--model NAME] [--part tune|report] [--wrong] [--raw]

The instructions have been read before, as on a server that decides the same thing about every call; the input is new.
The wording and the calibration were chosen on the part `tune` of decisions.toml.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import asyncio
import time
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from model.hub.catalog import QWEN_05B
from server.chat_completions.decision import Decision, DecisionMaker, DecisionRequest
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine

_REPEATS = 3
"""Times that each input is decided about, with words added that change nothing."""


class Part(StrEnum):
    """The parts of the set."""

    TUNE = "tune"
    REPORT = "report"


@dataclass(frozen=True)
class Result:
    """One decision.

    Attributes:
        milliseconds: of each repeat.
    """

    task: dict[str, Any]
    text: str
    expected: Any
    decision: Decision
    milliseconds: list[float]

    @property
    def right(self) -> bool:
        """Whether it is right."""
        if isinstance(self.expected, list):
            return bool(self.expected[0] <= self.decision.value <= self.expected[-1])
        return bool(self.decision.value == self.expected)


async def measure(maker: DecisionMaker, part: Part, calibrate: bool) -> list[Result]:
    """Make every decision of a part."""
    tasks = tomllib.loads((Path(__file__).parent / "decisions.toml").read_text(encoding="utf-8"))[part]
    results = []
    for task in tasks:
        request = {**task["request"], "calibrate": calibrate}
        await maker.decide(DecisionRequest.model_validate({**request, "input": "Hello."}))  # reads the instructions
        for case in task["cases"]:
            decisions, milliseconds = list[Decision](), list[float]()
            for number in range(_REPEATS):
                text = case["input"] if number == 0 else f"{case['input']} (call {number})"
                began = time.perf_counter()
                decisions.append(await maker.decide(DecisionRequest.model_validate({**request, "input": text})))
                milliseconds.append(1000 * (time.perf_counter() - began))
            results.append(Result(request, case["input"], case["right"], decisions[0], milliseconds))
    return results


def main(
    model: str = QWEN_05B.name,
    part: Part = Part.REPORT,
    wrong: Annotated[bool, typer.Option(help="List the wrong decisions.")] = False,
    raw: Annotated[bool, typer.Option(help="Without calibration.")] = False,
) -> None:
    """Measure and report."""
    console = Console()
    engine = load_engine(ModelOptions(model=model), Console(stderr=True))
    results = asyncio.run(measure(DecisionMaker(engine), part, not raw))
    engine.close()
    table = Table("decision", "right", "ms p50", "ms p95")
    for kind in ("boolean", "choice", "number"):
        own = [result for result in results if result.task["type"] == kind]
        p50, p95 = np.percentile([each for result in own for each in result.milliseconds], (50, 95))
        table.add_row(kind, f"{sum(result.right for result in own)} of {len(own)}", f"{p50:.0f}", f"{p95:.0f}")
    for result in results if wrong else ():
        if not result.right:
            console.print(f"{result.task['instructions']} {result.text} → {result.decision.value}", markup=False)
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
