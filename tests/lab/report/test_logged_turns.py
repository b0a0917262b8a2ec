"""Measurements from a turn log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lab.report.logged_turns import logged_turns
from server.observability.turn_log import TurnLog, TurnRecord

RECORD = TurnRecord(
    "turn_1", 1e11, 640.0, {"end_of_turn": 300.0}, {"guesses": 2, "guess_kept": True}, "completed", "Hello?", "Hello."
)


def test_only_spoken_turns_are_measurements(tmp_path: Path) -> None:
    log = TurnLog(tmp_path / "turns.sqlite")
    for record in (RECORD, replace(RECORD, turn_id="turn_2", latency_ms=None)):
        log.record(record)
    log.close()
    (turn,) = logged_turns(tmp_path / "turns.sqlite")  # a turn that was not spoken has no latency
    assert (turn.latency_ms, turn.speculations, turn.speculation_used) == (640, 2, True)
    assert (turn.kind, turn.transcript, turn.response_text, turn.from_turn_log) == ("live", "Hello?", "Hello.", True)
