"""What a stage found: read from its file, printed as a table and saved as JSON. Imports nothing heavy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_MAX_FIGURES = 90
"""Characters of a check's figures in the table; the JSON has them all."""


@dataclass(frozen=True)
class Result:
    """The result of a check.

    Attributes:
        held: None if it has nothing to hold, because it only measures or because it could not be made here.
        figures: what it measured, by name.
        problem: why it does not hold, or why it could not be made.
    """

    name: str
    held: bool | None
    seconds: float
    figures: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class StageReport:
    """The results of a stage, and what ended it early if anything did."""

    name: str
    results: tuple[Result, ...] = ()
    problem: str = ""

    @property
    def held(self) -> bool:
        """Whether it ran to its end and every check held."""
        return not self.problem and all(result.held is not False for result in self.results)

    @property
    def summary(self) -> str:
        """One line."""
        failed = [result.name for result in self.results if result.held is False]
        return "; ".join(filter(None, (f"{len(self.results)} checks", *(f"failed: {n}" for n in failed), self.problem)))


def read_report(name: str, path: Path, problem: str) -> StageReport:
    """The report of a stage that has ended, from the file that `context.Context` wrote.

    Args:
        problem: how its process ended, if not well. A check that had begun and not ended failed with it.
    """
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    results = [Result(**line["result"]) for line in lines if "result" in line]
    begun = [line["begun"] for line in lines if "begun" in line]
    if len(begun) > len(results):
        results.append(Result(begun[-1], False, 0.0, {}, problem or "it did not end"))
    if not results and not problem:
        problem = "it recorded no check"
    return StageReport(name, tuple(results), problem)


def save_json(reports: Sequence[StageReport], path: Path, seconds: float, *, cpu: bool) -> None:
    """Save everything."""
    found = {
        "held": all(report.held for report in reports),
        "cpu": cpu,
        "seconds": round(seconds, 1),
        "stages": [asdict(report) for report in reports],
    }
    path.write_text(json.dumps(found, indent=1), encoding="utf-8")


def print_table(reports: Sequence[StageReport], seconds: float) -> None:
    """Print a line for each check, and one for all of them last."""
    width = max((len(result.name) for report in reports for result in report.results), default=0)
    for report in reports:
        print(f"\n{report.name}{f': {report.problem}' if report.problem else ''}")
        for result in report.results:
            figures = " ".join(f"{name}={_short(value)}" for name, value in result.figures.items())
            text = result.problem or (figures if len(figures) <= _MAX_FIGURES else f"{figures[:_MAX_FIGURES]}…")
            word = {True: "held", False: "FAILED", None: "-"}[result.held]
            print(f"  {result.name:{width}}  {word:6}  {result.seconds:6.1f} s  {text}")
    results = [result for report in reports for result in report.results]
    held, failed = (sum(result.held is value for result in results) for value in (True, False))
    early = [report.name for report in reports if report.problem]
    verdict = "accepted" if all(report.held for report in reports) else "NOT ACCEPTED"
    ended = f", ended early: {', '.join(early)}" if early else ""
    print(f"\n{verdict}: {held} checks held, {failed} failed{ended}, {seconds:.0f} s")


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).replace(" ", "")
