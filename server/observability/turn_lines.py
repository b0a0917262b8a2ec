"""One log line for each turn, with the turn's id."""

from __future__ import annotations

import logging

from server.observability.turn_log import TurnRecord

_log = logging.getLogger("rejoinder.turns")


def log_turn(turn: TurnRecord) -> None:
    """Log a turn, without what was said."""
    latency = "not spoken" if turn.latency_ms is None else f"{turn.latency_ms:.0f} ms"
    fields = {
        "turn_id": turn.turn_id,
        "status": turn.status,
        "latency_ms": turn.latency_ms,
        "stages_ms": turn.stages_ms,
        "key": turn.key,
    }
    sent = [f", words sent to {r['model']} at {r['host']} ({r['status']})" for r in turn.details.get("remote") or ()]
    _log.info("turn %s %s, %s%s", turn.turn_id, turn.status, latency, "".join(sent), extra=fields)
