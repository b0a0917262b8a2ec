"""Measurements from a turn log, for reports on real conversations. What only a client can observe is missing."""

from __future__ import annotations

from pathlib import Path

from lab.report.measure import Measurement, turn_event_fields
from server.observability.turn_log import read_turn_log


def logged_turns(path: Path) -> list[Measurement]:
    """The spoken turns that `rejoinder serve --turn-log` recorded, with the latency that the server measured.

    Raises:
        OSError: the file is missing or not a turn log.
    """
    return [
        Measurement(
            record.turn_id,
            "live",
            record.transcript or "",
            latency_ms=record.latency_ms,
            stages_ms=record.stages_ms,
            server_latency_ms=record.latency_ms,
            **turn_event_fields(record.details),
            from_turn_log=True,
            transcript=record.transcript or "",
            response_text=record.response or "",
        )
        for record in read_turn_log(path)
        if record.latency_ms is not None
    ]
