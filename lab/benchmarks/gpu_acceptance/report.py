"""What the stages found: read from their files, kept from call to call, printed as a table. Imports nothing heavy."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

from lab.benchmarks.gpu_acceptance.call import Call

_MAX_FIGURES = 90
"""Characters of a check's figures in the table; the JSON has them all."""

_ROOT = Path(__file__).parents[3]

_SOURCES = ("agent", "chat", "lab", "model", "server", "voice")
"""Folders of the code that is checked, and checks. After a change in them everything runs again."""

ARCHIVE = "gpu_acceptance.tar.gz"


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
    """The results of a stage, and what ended it early if anything did.

    Attributes:
        interrupted: the time of the command was over before its end: another call runs it.
    """

    name: str
    results: tuple[Result, ...] = ()
    problem: str = ""
    interrupted: bool = False

    @staticmethod
    def of(saved: Mapping[str, Any]) -> StageReport:
        """A report that was saved as JSON."""
        return StageReport(**{**saved, "results": tuple(Result(**result) for result in saved["results"])})

    @property
    def held(self) -> bool:
        """Whether it ran to its end and every check held."""
        return not self.problem and all(result.held is not False for result in self.results)

    @property
    def failed(self) -> bool:
        """Whether it did not hold although it had its time."""
        return not self.held and not self.interrupted

    @property
    def summary(self) -> str:
        """One line."""
        failed = [result.name for result in self.results if result.held is False]
        return "; ".join(filter(None, (f"{len(self.results)} checks", *(f"failed: {n}" for n in failed), self.problem)))


class Summary:
    """What all stages of a part have found, in `gpu_acceptance_PART.json`: saved after each stage, and read by the next
    call.

    Attributes:
        reports: of the stages, in order.
    """

    def __init__(self, path: Path, key: str, cpu: bool, reports: Sequence[StageReport]) -> None:
        self._path, self._key, self._cpu = path, key, cpu
        self._found = {report.name: report for report in reports}
        self._order = list(self._found)

    @staticmethod
    def open(part: str, call: Call) -> Summary:
        """What an earlier call with the same code, device and weights has found."""
        path, key = call.out / f"gpu_acceptance_{part}.json", _key(call)
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            reports = [StageReport.of(report) for report in saved["stages"]] if saved["key"] == key else []
        except (OSError, ValueError, KeyError, TypeError):
            reports = []
        return Summary(path, key, call.cpu, reports)

    @property
    def reports(self) -> list[StageReport]:
        """Those of the stages so far."""
        return [self._found[name] for name in self._order if name in self._found]

    @property
    def held(self) -> bool:
        """Whether every stage has."""
        return all(name in self._found and self._found[name].held for name in self._order)

    def expect(self, names: Sequence[str]) -> None:
        """All stages of the part, in order."""
        self._order = list(names)

    def add(self, report: StageReport) -> None:
        """Note the result of a stage, and save."""
        self._found[report.name] = report
        found = {
            "held": self.held,
            "cpu": self._cpu,
            "key": self._key,
            "stages": [asdict(report) for report in self.reports],
        }
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(found, indent=1), encoding="utf-8")
        partial.replace(self._path)

    def archive(self) -> None:
        """Pack results and logs of all calls into one file."""
        folder = self._path.parent
        with tarfile.open(folder / ARCHIVE, "w:gz") as tar:
            for path in sorted((*folder.glob("*.json"), *folder.glob("*.jsonl"), *folder.glob("*.log"))):
                tar.add(path, path.name)


def _key(call: Call) -> str:
    """Changes with the code, the device and the weights."""
    digest = sha256(repr((call.cpu, metadata.version("torch"), "" if call.cpu else _gpu_name())).encode())
    for folder in _SOURCES:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    for given in filter(None, (call.weights, call.adapter)):
        for path in [given] if given.is_file() else sorted(given.rglob("*")):
            digest.update(f"{path.name} {path.stat().st_size if path.is_file() else 0}\n".encode())
    return digest.hexdigest()


def _gpu_name() -> str:
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def read_report(name: str, path: Path, problem: str, *, interrupted: bool = False) -> StageReport:
    """The report of a stage that has ended, from the file that `context.Context` wrote.

    Args:
        problem: how its process ended, if not well. A check that had begun and not ended failed with it.
        interrupted: the command's time was over.
    """
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    results = [Result(**line["result"]) for line in lines if "result" in line]
    begun = [line["begun"] for line in lines if "begun" in line]
    if len(begun) > len(results):
        results.append(Result(begun[-1], None if interrupted else False, 0.0, {}, problem or "it did not end"))
    if not results and not problem:
        problem = "it recorded no check"
    return StageReport(name, tuple(results), problem, interrupted)


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
    early = [report.name for report in reports if report.problem and not report.interrupted]
    left = [report.name for report in reports if report.interrupted]
    verdict = "accepted"
    if not all(report.held for report in reports):
        verdict = "NOT ACCEPTED" if any(report.failed for report in reports) else "NOT FINISHED"
    ended = f", ended early: {', '.join(early)}" if early else ""
    again = f"; the same command again runs {', '.join(left)}" if left else ""
    print(f"\n{verdict}: {held} checks held, {failed} failed{ended}, {seconds:.0f} s{again}")


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).replace(" ", "")
