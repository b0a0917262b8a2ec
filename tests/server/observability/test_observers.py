"""Observers of turns, and what the dashboard is told."""

from __future__ import annotations

from server.observability.observers import TurnObservers
from server.observability.turn_log import TurnRecord

RECORD = TurnRecord(
    "turn_1", 1e9, 640.0, {"synthesis": 100.0}, {"tokens": 5}, "completed", "Hi", "Hello", "alice", "+1"
)


def test_an_observer_that_fails_disturbs_no_other() -> None:
    seen: list[TurnRecord] = []

    def fail(turn: TurnRecord) -> None:
        raise RuntimeError

    TurnObservers([fail, seen.append]).record_turn(RECORD)
    assert seen == [RECORD]


def test_the_dashboard_is_told_figures_but_not_what_was_said() -> None:
    observers = TurnObservers()
    for _ in range(600):
        observers.record_turn(RECORD)
    summary = observers.recent_turns.summary()
    assert len(summary["turns"]) == 50
    assert len(summary["latencies_ms"]) == 500
    assert summary["percentiles_ms"]["p95"] == 640
    assert "Hello" not in str(summary) and "+1" not in str(summary)
