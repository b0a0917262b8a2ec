"""Everything that takes note of turns: the metrics, the dashboard, the log, and what the operator has added."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from server.observability.metrics import Metrics
from server.observability.recent_turns import RecentTurns
from server.observability.turn_lines import log_turn
from server.observability.turn_log import TurnRecord

_log = logging.getLogger("rejoinder.server")


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
