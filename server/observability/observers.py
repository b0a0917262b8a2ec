"""Everything that takes note of turns: the metrics, the dashboard, the log, and what the operator has added."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from server.observability.metrics import Metrics
from server.observability.turn_log import TurnRecord
from voice.turn_metrics import END_OF_TURN, STAGES

_log, _turns = logging.getLogger("rejoinder.server"), logging.getLogger("rejoinder.turns")

_MAX_TURNS, _SHOWN_TURNS = 500, 50
"""How many turns the dashboard's figures cover, and how many of them it shows."""


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


class RecentTurns:
    """The last turns of all conversations, kept in memory for the dashboard. Without what was said."""

    def __init__(self) -> None:
        self._turns: deque[TurnRecord] = deque(maxlen=_MAX_TURNS)

    def record_turn(self, turn: TurnRecord) -> None:
        """Remember a turn, without its text and its caller."""
        self._turns.append(replace(turn, transcript=None, response=None, caller=""))

    def summary(self) -> dict[str, Any]:
        """What the dashboard shows: the newest turns with the stages of each, and how all latencies are distributed."""
        latencies = [turn.latency_ms for turn in self._turns if turn.latency_ms is not None]
        return {
            "stages": [name for name, _, _ in STAGES],
            "end_of_turn": END_OF_TURN[0],
            "latencies_ms": latencies,
            "percentiles_ms": _percentiles(latencies),
            "turns": [_row(turn) for turn in list(self._turns)[: -_SHOWN_TURNS - 1 : -1]],
        }


def merge_summaries(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The summaries of several servers as one; empty if there are none."""
    if not summaries:
        return {}
    latencies = [latency for summary in summaries for latency in summary["latencies_ms"]]
    turns = sorted((turn for summary in summaries for turn in summary["turns"]), key=lambda turn: -turn["ended_at"])
    return {
        **summaries[0],
        "latencies_ms": latencies,
        "percentiles_ms": _percentiles(latencies),
        "turns": turns[:_SHOWN_TURNS],
    }


def _row(turn: TurnRecord) -> dict[str, Any]:
    return {
        "turn_id": turn.turn_id,
        "ended_at": turn.ended_at,
        "status": turn.status,
        "key": turn.key,
        "latency_ms": turn.latency_ms,
        "stages_ms": turn.stages_ms,
        "tokens": turn.details.get("tokens"),
        "steps": turn.details.get("steps"),
        "speculative": bool(turn.details.get("guess_kept")),
    }


def _percentiles(latencies: Sequence[float]) -> dict[str, float | None]:
    shares = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
    return {
        name: round(float(np.quantile(latencies, share)), 1) if latencies else None for name, share in shares.items()
    }
