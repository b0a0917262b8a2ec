"""Turns of real conversations as a report sees them: what only a client hears of them is missing."""

from __future__ import annotations

from pathlib import Path

from server.report.measure import TOLD, Measurement
from server.timelines import read


def measurements(path: Path) -> list[Measurement]:
    """The spoken turns that `rejoinder serve --timelines` kept, their latency as the server saw it. Raises OSError."""
    return [
        Measurement(
            record.turn_id,
            "live",
            record.transcript or "",
            latency_ms=record.latency_ms,
            stages_ms=record.stages_ms,
            server_latency_ms=record.latency_ms,
            **{name: record.told[name] for name in TOLD if name in record.told},
            live=True,
            heard=record.transcript or "",
            answer=record.answer or "",
        )
        for record in read(path)
        if record.latency_ms is not None
    ]
