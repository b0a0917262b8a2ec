"""One run of the report: its measurements, with date, server, machine and versions; reads and writes its JSON file."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lab.report.figures import (
    ReportMetrics,
    compute_metrics,
    metrics_by_corpus,
    metrics_by_kind,
    metrics_by_sessions,
    metrics_by_voice,
    metrics_json,
    p95_slowdowns,
)
from lab.report.measure import Measurement
from server.processor import cpu_name

_VERSIONS = ("rejoinder", "torch", "ctranslate2", "faster-whisper", "piper-tts", "onnxruntime", "websockets")


class BadReport(ValueError):
    """A file is not a report; the message says why."""


@dataclass(frozen=True)
class Run:
    """Measurements and how they were taken.

    Attributes:
        date: end of the run, ISO 8601 in UTC.
        machine: CPU, cores and GPU of the machine that measured.
        models: names of the models, as far as known.
    """

    date: str
    server: str
    corpus: str
    machine: dict[str, Any]
    models: dict[str, str]
    versions: dict[str, str]
    measurements: list[Measurement] = field(default_factory=list)
    seed: int = 0

    @property
    def metrics(self) -> ReportMetrics:
        """The metrics of all turns."""
        return compute_metrics(self.measurements, self.seed)

    @property
    def parts(self) -> list[Run]:
        """A run for each corpus."""
        corpora = dict.fromkeys(turn.corpus for turn in self.measurements)
        if len(corpora) < 2:
            return [self]
        return [
            replace(self, corpus=corpus, measurements=[turn for turn in self.measurements if turn.corpus == corpus])
            for corpus in corpora
        ]

    @property
    def metrics_by_corpus(self) -> dict[str, ReportMetrics]:
        """The metrics of the turns of each corpus."""
        return metrics_by_corpus(self.measurements, self.seed)

    @property
    def metrics_by_kind(self) -> dict[str, ReportMetrics]:
        """The metrics of each kind of turn."""
        return metrics_by_kind(self.measurements, self.seed)

    @property
    def metrics_by_voice(self) -> dict[str, ReportMetrics]:
        """The metrics of the turns of each synthesized voice."""
        return metrics_by_voice(self.measurements, self.seed)

    @property
    def metrics_by_sessions(self) -> dict[int, ReportMetrics]:
        """The metrics of each number of conversations at the same time."""
        return metrics_by_sessions(self.measurements, self.seed)

    @classmethod
    def now(
        cls, measurements: Sequence[Measurement], *, server: str, corpus: str, models: dict[str, str], seed: int = 0
    ) -> Run:
        """A run on this machine that ends now."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(date, server, corpus, machine(), models, versions(), list(measurements), seed)

    def write(self, path: Path) -> None:
        """Write the JSON file. Raises OSError."""
        payload = {
            **metrics_json(self.metrics),
            "by_corpus": {corpus: metrics_json(metrics) for corpus, metrics in self.metrics_by_corpus.items()},
            "by_kind": {kind: metrics_json(metrics) for kind, metrics in self.metrics_by_kind.items()},
            "by_voice": {voice: metrics_json(metrics) for voice, metrics in self.metrics_by_voice.items()},
            "by_sessions": self._by_sessions_json(),
            "date": self.date,
            "server": self.server,
            "corpus": self.corpus,
            "machine": self.machine,
            "models": self.models,
            "versions": self.versions,
            "seed": self.seed,
            "measurements": [turn.to_json() for turn in self.measurements],
        }
        path.write_text(json.dumps(payload, indent=1) + "\n", encoding="utf-8")

    def _by_sessions_json(self) -> dict[str, dict[str, Any]]:
        groups = self.metrics_by_sessions
        slowdowns = p95_slowdowns(groups)
        return {
            str(number): {**metrics_json(metrics), "p95_slowdown": slowdowns[number]}
            for number, metrics in groups.items()
        }


def read_run(path: Path) -> Run:
    """Read a JSON file that `Run.write` wrote.

    Raises:
        BadReport: the file is missing or not a report.
    """
    try:
        payload = json.loads(path.read_text(encoding="utf-8"))
        measurements = [Measurement.from_json(turn) for turn in payload["measurements"]]
        date, server, corpus = (str(payload[name]) for name in ("date", "server", "corpus"))
        about = (dict(payload[name]) for name in ("machine", "models", "versions"))
        return Run(date, server, corpus, *about, measurements, int(payload.get("seed", 0)))  # type: ignore[call-arg,arg-type]
    except FileNotFoundError:
        raise BadReport(f"there is no report {path}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadReport(f"{path} is not a report written by `rejoinder report --json`") from None


def machine() -> dict[str, Any]:
    """CPU, cores and the GPU, if torch finds one."""
    import torch  # slow to import, and not needed while turns are measured

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return {
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "gpu": gpu,
    }


def versions() -> dict[str, str]:
    """Versions of the packages that affect latency."""
    installed = {"python": platform.python_version()}
    for name in _VERSIONS:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed
