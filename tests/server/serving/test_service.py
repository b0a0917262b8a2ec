"""What a server learns from its turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.access.adaptive_limit import AdaptiveLimit
from server.access.admission import Admission
from server.observability.turn_log import TurnRecord
from server.serving.model_record import ModelRecord
from server.serving.service import _learn


def turn(latency_ms: float | None = 500.0, status: str = "completed", **details: Any) -> TurnRecord:
    return TurnRecord("turn", 0.0, latency_ms, {}, details, status)


@pytest.mark.parametrize(
    ("record", "limit", "model"),
    [
        (turn(), 1, 1),
        (turn(None), 0, 0),
        (turn(status="failed"), 0, 0),
        (turn(status="cancelled"), 0, 0),
        (turn(tools=[{"name": "search"}]), 0, 0),
        (turn(remote=[{"host": "elsewhere"}]), 0, 0),
    ],
)
def test_turns_that_this_machine_alone_has_answered_count(
    tmp_path: Path, record: TurnRecord, limit: int, model: int
) -> None:
    adaptive, models = AdaptiveLimit(2, 1, 1000), ModelRecord(tmp_path, "a machine")
    admission = Admission(limit=adaptive)
    admission.reserve("realtime")
    _learn(models, "tiny", admission, record)
    models.save()
    history = models.histories().get("tiny")
    assert len(adaptive._latencies) == limit
    assert (0 if history is None else len(history.turns_ms)) == model


def test_turns_beside_other_conversations_say_nothing_about_the_model(tmp_path: Path) -> None:
    adaptive, models = AdaptiveLimit(2, 1, 1000), ModelRecord(tmp_path, "a machine")
    admission = Admission(limit=adaptive)
    for _ in range(2):
        admission.reserve("realtime")
    _learn(models, "tiny", admission, turn())
    models.save()
    assert len(adaptive._latencies) == 1 and models.histories() == {}
