"""One run of the report: the measured turns with where, when and with what; its JSON file."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from server.report.figures import Figures, as_json, by_kind, figures
from server.report.measure import Measurement

_VERSIONS = ("rejoinder", "torch", "ctranslate2", "faster-whisper", "piper-tts", "onnxruntime", "websockets")


class BadReport(ValueError):
    """A file that is no report; the message says why."""


@dataclass(frozen=True)
class Run:
    """What a report was made from.

    Attributes:
        date: of its end, ISO 8601 in UTC.
        machine: processor, cores and GPU of the machine that measured.
        models: names, as far as they are known.
    """

    date: str
    server: str
    corpus: str
    machine: dict[str, Any]
    models: dict[str, str]
    versions: dict[str, str]
    measured: list[Measurement] = field(default_factory=list)
    seed: int = 0

    @property
    def figures(self) -> Figures:
        """The figures of all turns."""
        return figures(self.measured, self.seed)

    @property
    def by_kind(self) -> dict[str, Figures]:
        """The figures of each kind."""
        return by_kind(self.measured, self.seed)

    @classmethod
    def now(
        cls, measured: Sequence[Measurement], *, server: str, corpus: str, models: dict[str, str], seed: int = 0
    ) -> Run:
        """A run that ends now, on this machine."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(date, server, corpus, machine(), models, versions(), list(measured), seed)

    def write(self, path: Path) -> None:
        """Write the JSON file. Raises OSError."""
        said = {
            **as_json(self.figures),
            "by_kind": {kind: as_json(found) for kind, found in self.by_kind.items()},
            "date": self.date,
            "server": self.server,
            "corpus": self.corpus,
            "machine": self.machine,
            "models": self.models,
            "versions": self.versions,
            "seed": self.seed,
            "measurements": [asdict(turn) for turn in self.measured],
        }
        path.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> Run:
    """Read a JSON file that `Run.write` wrote.

    Raises:
        BadReport: it is missing or something else.
    """
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        measured = [Measurement.read(turn) for turn in said["measurements"]]
        date, server, corpus = (str(said[name]) for name in ("date", "server", "corpus"))
        about = (dict(said[name]) for name in ("machine", "models", "versions"))
        return Run(date, server, corpus, *about, measured, int(said.get("seed", 0)))  # type: ignore[call-arg,arg-type]
    except FileNotFoundError:
        raise BadReport(f"there is no report {path}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadReport(f"{path} is no report that `rejoinder report --json` wrote") from None


def machine() -> dict[str, Any]:
    """Processor, cores and, where torch sees one, the GPU."""
    import torch  # slow to import, and not needed while turns are measured

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return {
        "cpu": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "gpu": gpu,
    }


def versions() -> dict[str, str]:
    """Of what the latency depends on."""
    found = {"python": platform.python_version()}
    for name in _VERSIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()
