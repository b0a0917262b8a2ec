"""What a server learns from its turns, and its end."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from server.access.adaptive_limit import AdaptiveLimit
from server.access.admission import Admission
from server.access.usage import Usage, UsageLog, read_usage
from server.observability.turn_log import TurnRecord
from server.serving.model_record import ModelRecord
from server.serving.service import Service, _learn
from server.shared_store import SQLiteStore, StoreUnavailable


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


def test_records_that_cannot_be_closed_keep_nothing_else_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.storage._BUSY_TIMEOUT_S", 0.05)
    unused: Any = None
    path, closed = tmp_path / "records.sqlite", list[str]()
    store, usage = SQLiteStore(path), UsageLog(tmp_path / "usage.sqlite")
    usage.add("alice", Usage(turns=1))
    closers = [lambda: closed.append("first"), store.close, usage.close, lambda: closed.append("last")]
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("begin immediate")
        with pytest.raises(StoreUnavailable, match="database is locked"):
            Service(unused, Starlette(), closers=closers).close()
    assert closed == ["first", "last"] and len(read_usage(tmp_path / "usage.sqlite")) == 1
    with pytest.raises(StoreUnavailable, match="closed"):
        store.get("session/1")
