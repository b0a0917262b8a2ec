"""What a command of the acceptance was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Call:
    """What a command was asked for.

    Attributes:
        out: folder of logs and results.
        cpu: tiny shapes on the CPU.
        weights: folder of models, None for those that are installed or, on a CPU, a tiny one.
        adapter: file of an adapter, None for the bundled one.
    """

    out: Path
    cpu: bool
    weights: Path | None = None
    adapter: Path | None = None

    @property
    def options(self) -> list[str]:
        """Of the command line."""
        paths = (("--out", self.out), ("--weights", self.weights), ("--adapter", self.adapter))
        given = [part for name, path in paths if path is not None for part in (name, str(path))]
        return [*given, *(["--cpu"] if self.cpu else [])]
