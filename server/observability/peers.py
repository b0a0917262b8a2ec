"""The other replicas of the same service, if there are any: what each reports, and all reports as one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from server.observability.observers import merge_summaries

_SAMPLE = re.compile(rb"([a-zA-Z_:][\w:]*+)(\{)?(.*)", re.DOTALL)


@dataclass(frozen=True)
class ReplicaReport:
    """What one replica knows of itself.

    Attributes:
        name: of the replica.
        draining: whether it admits nobody.
        ready: whether the next caller would be admitted at once.
        capacity: conversations that its trial answered in time.
        peak_memory_mb: of its process.
        refused: callers, by reason.
        conversations: the open ones, as the dashboard shows them.
        metrics: in Prometheus's text format; empty unless details were asked for.
        turns: `RecentTurns.summary`; empty unless details were asked for.
    """

    name: str
    draining: bool
    ready: bool
    capacity: int
    peak_memory_mb: int
    refused: dict[str, int]
    conversations: list[dict[str, Any]]
    metrics: bytes = b""
    turns: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def together(cls, reports: Sequence[ReplicaReport]) -> ReplicaReport:
        """Several replicas as if they were one. Their metrics keep the names of the replicas.

        Args:
            reports: at least one.
        """
        if len(reports) == 1:
            return reports[0]
        refused = Counter[str]()
        for report in reports:
            refused.update(report.refused)
        return cls(
            name="",
            draining=all(report.draining for report in reports),
            ready=any(report.ready for report in reports),
            capacity=sum(report.capacity for report in reports),
            peak_memory_mb=sum(report.peak_memory_mb for report in reports),
            refused=dict(refused),
            conversations=sorted(
                ({**one, "replica": report.name} for report in reports for one in report.conversations),
                key=lambda one: -one["age_s"],
            ),
            metrics=merge_metrics((report.name, report.metrics) for report in reports if report.metrics),
            turns=merge_summaries([report.turns for report in reports if report.turns]),
        )


class Peers(Protocol):
    """All replicas of a service, this one included."""

    async def reports(self, *, details: bool) -> list[ReplicaReport]:
        """A report of each replica that answers.

        Args:
            details: whether the reports contain metrics and turns, which take milliseconds to collect.
        """

    async def drain(self, draining: bool) -> None:
        """Admit nobody on any replica, or admit again."""


def merge_metrics(replicas: Iterable[tuple[str, bytes]]) -> bytes:
    """Metrics of several replicas, each sample with the label `replica`.

    Args:
        replicas: the name of each, and its metrics in Prometheus's text format.
    """
    families: dict[bytes, list[bytes]] = {}
    for name, text in replicas:
        label, family = b'replica="%s"' % name.encode(), b""
        for line in text.splitlines():
            if line.startswith(b"# HELP "):
                family = line.split(b" ", 3)[2]
                families.setdefault(family, [line])
            elif line.startswith(b"#"):
                if line not in families[family]:
                    families[family].append(line)
            elif (sample := _SAMPLE.fullmatch(line)) is not None:
                metric, brace, rest = sample.groups()
                families[family].append(metric + b"{" + label + (b"," + rest if brace else b"}" + rest))
    return b"".join(line + b"\n" for lines in families.values() for line in lines)
