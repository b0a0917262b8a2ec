"""Replicas notice the death of others through the shared records."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from server.access.admission import Admission
from server.observability.metrics import Metrics
from server.replica_presence import Presence
from server.shared_store import SQLiteStore
from tests.real_time import wait_until


def test_one_replica_reports_the_conversations_of_one_that_died(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now, store, admission = 0.0, SQLiteStore(tmp_path / "records.sqlite"), Admission(8)
    dying, first, second = (Presence(store, one, lambda: now) for one in (admission, Admission(8), Admission(8)))
    for kind in ("realtime", "phone", "phone"):
        admission.reserve(kind)  # type: ignore[arg-type]
    dying.beat()
    while now < 9:
        first.beat()
        second.beat()
        now += 2
    assert first.lost.total() == 0
    with caplog.at_level(logging.ERROR):
        while now < 16:
            second.beat()
            first.beat()
            now += 2
    assert second.lost == {"realtime": 1, "phone": 2} and first.lost.total() == 0  # one of them reports it, once
    assert [record.getMessage() for record in caplog.records if "with 1 Realtime" in record.getMessage()]
    text = Metrics(second.readings()).text().decode()
    assert 'rejoinder_dead_replica_conversations_total{kind="phone"} 2.0' in text
    store.close()


async def test_a_replica_that_ends_in_order_is_not_missed(tmp_path: Path) -> None:
    times, store, admission = [0.0], SQLiteStore(tmp_path / "records.sqlite"), Admission(8)
    ending, other = (Presence(store, one, lambda: times[-1]) for one in (admission, Admission(8)))
    admission.reserve("phone")
    task = asyncio.create_task(ending.run())
    await wait_until(lambda: bool(store.scan("replica/")))
    other.beat()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    for now in (5.0, 11.0, 17.0):
        times.append(now)
        other.beat()
    assert other.lost.total() == 0
    store.close()
