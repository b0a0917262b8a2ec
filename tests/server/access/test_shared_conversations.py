"""A key's limit of conversations counts on all replicas together, and replicas notice the death of others."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from server.access.admission import Admission, Refused
from server.access.keys import ApiKey, KeyLimits
from server.access.shared_conversations import SharedConversations
from server.shared_store import SharedRecords, SQLiteStore, StoreUnavailable
from tests.real_time import wait_until

ALICE = ApiKey("alice", KeyLimits(conversations=2))


class Records(SQLiteStore):
    """Records whose time is set, and which may fail.

    Attributes:
        now: Unix time in seconds.
    """

    def __init__(self, path: Path) -> None:
        self.now, self.fails = 1000.0, False
        super().__init__(path, lambda: self.now)

    def scan(self, prefix: str) -> dict[str, bytes]:
        if self.fails:
            raise StoreUnavailable("the shared records cannot be used")
        return super().scan(prefix)


def shared(
    records: SQLiteStore, admission: Admission, clock: Callable[[], float] = time.monotonic
) -> SharedConversations:
    return SharedConversations(
        SharedRecords(records), admission.limited_conversations, admission.conversations_by_kind, clock
    )


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "records.sqlite")


@pytest.fixture
def replica(records: Records) -> Callable[[], Admission]:
    def make() -> Admission:
        admission = Admission(8)
        admission.shared = shared(records, admission)
        return admission

    return make


async def admitted(admission: Admission, key: ApiKey = ALICE, *, continued: bool = False) -> bool:
    try:
        await admission.admit("realtime", key, continued=continued)
    except Refused as refusal:
        assert refusal.code == "key_conversation_limit"
        return False
    return True


async def test_a_key_has_its_limit_on_all_replicas_together(replica: Callable[[], Admission]) -> None:
    one, two = replica(), replica()
    slot = await one.admit("realtime", ALICE)
    assert await admitted(two)
    assert not await admitted(one) and not await admitted(two)
    assert one.usage.today("alice").conversations == 1 and len(one.slots) == 1
    assert await admitted(two, ApiKey("bob", KeyLimits(conversations=1)))
    assert one.shared is not None
    keeping = asyncio.create_task(one.shared.run())
    await asyncio.sleep(0)
    slot.release()
    await wait_until(lambda: admitted(two))  # one tells at once that a conversation has ended
    keeping.cancel()


async def test_of_two_that_come_at_the_same_time_at_most_one_gets_the_last_conversation(
    replica: Callable[[], Admission],
) -> None:
    key = ApiKey("alice", KeyLimits(conversations=1))
    for _ in range(5):
        replicas = [replica() for _ in range(3)]
        assert sum(await asyncio.gather(*(admitted(one, key) for one in replicas))) <= 1
        for one in replicas:
            for slot in tuple(one.slots):
                slot.release()
            assert one.shared is not None
            await one.shared.elsewhere("alice")  # which writes down that it has none


async def test_the_conversations_of_a_dead_replica_count_for_a_while_and_may_go_on_elsewhere(
    replica: Callable[[], Admission], records: Records
) -> None:
    dead, alive = replica(), replica()
    assert await admitted(dead) and await admitted(dead)
    assert not await admitted(alive)
    assert await admitted(alive, continued=True)
    records.now += 7
    assert await admitted(alive)
    assert not await admitted(alive)


async def test_without_the_records_a_limit_counts_on_each_replica(
    replica: Callable[[], Admission], records: Records
) -> None:
    one, two = replica(), replica()
    records.fails = True
    for admission in (one, two):
        assert await admitted(admission) and await admitted(admission)
        assert not await admitted(admission)


def test_one_replica_reports_the_conversations_of_one_that_died(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now, store, admission = 0.0, SQLiteStore(tmp_path / "records.sqlite"), Admission(8)
    dying, first, second = (shared(store, one, lambda: now) for one in (admission, Admission(8), Admission(8)))
    for kind in ("realtime", "phone", "phone"):
        admission.reserve(kind)  # type: ignore[arg-type]
    dying.beat(store)
    while now < 9:
        first.beat(store)
        second.beat(store)
        now += 2
    assert first.lost.total() == 0
    with caplog.at_level(logging.ERROR):
        while now < 16:
            second.beat(store)
            first.beat(store)
            now += 2
    assert second.lost == {"realtime": 1, "phone": 2} and first.lost.total() == 0  # one of them reports it, once
    assert [record.getMessage() for record in caplog.records if "with 1 Realtime" in record.getMessage()]
    store.close()


async def test_a_replica_that_ends_in_order_is_not_missed(tmp_path: Path) -> None:
    times, store, admission = [0.0], SQLiteStore(tmp_path / "records.sqlite"), Admission(8)
    ending, other = (shared(store, one, lambda: times[-1]) for one in (admission, Admission(8)))
    admission.reserve("phone")
    task = asyncio.create_task(ending.run())
    await wait_until(lambda: bool(store.scan("replica/")))
    other.beat(store)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    for now in (5.0, 11.0, 17.0):
        times.append(now)
        other.beat(store)
    assert other.lost.total() == 0
    store.close()
