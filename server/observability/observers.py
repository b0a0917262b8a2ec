"""Everything that takes note of turns: the metrics, the dashboard, the log, and what the operator has added."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from server.observability.metrics import Metrics
from server.observability.recent_turns import RecentTurns
from server.observability.turn_log import TurnRecord

_log, _turns = logging.getLogger("rejoinder.server"), logging.getLogger("rejoinder.turns")


class TurnObservers:
    """Passes every turn on.

    Args:
        more: further observers, such as the turn log.
    """

    def __init__(self, more: Sequence[Callable[[TurnRecord], None]] = ()) -> None:
        self.metrics, self.recent_turns = Metrics(), RecentTurns()
        self._observers = [self.metrics.record_turn, self.recent_turns.record_turn, log_turn, *more]

    def record_turn(self, turn: TurnRecord) -> None:
        """Tell all of them. One that fails disturbs neither the others nor the conversation."""
        for observer in self._observers:
            try:
                observer(turn)
            except Exception:
                _log.exception("a turn could not be recorded")


def log_turn(turn: TurnRecord) -> None:
    """Log a turn in one line with its id, without what was said."""
    latency = "not spoken" if turn.latency_ms is None else f"{turn.latency_ms:.0f} ms"
    fields = {
        "turn_id": turn.turn_id,
        "status": turn.status,
        "latency_ms": turn.latency_ms,
        "stages_ms": turn.stages_ms,
        "key": turn.key,
    }
    sent = [f", words sent to {r['model']} at {r['host']} ({r['status']})" for r in turn.details.get("remote") or ()]
    _turns.info("turn %s %s, %s%s", turn.turn_id, turn.status, latency, "".join(sent), extra=fields)
