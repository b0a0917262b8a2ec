"""The last turns, kept in memory for the dashboard. Without what was said."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from server.observability.turn_log import TurnRecord
from voice.turn_metrics import END_OF_TURN, STAGES, percentile

_MAX_TURNS = 500

_SHOWN_TURNS = 50


class RecentTurns:
    """The last turns of all conversations."""

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
    return {name: round(percentile(latencies, share), 1) if latencies else None for name, share in shares.items()}
