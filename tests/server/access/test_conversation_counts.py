"""A key's limit of conversations counts on all replicas together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from server.access.admission import Admission, Refused
from server.access.conversation_counts import ConversationCounts
from server.access.keys import ApiKey, KeyLimits
from server.shared_store import SQLiteStore, StoreUnavailable
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


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "records.sqlite")


@pytest.fixture
def replica(records: Records) -> Callable[[], Admission]:
    def make() -> Admission:
        admission = Admission(8)
        admission.shared = ConversationCounts(records, admission.limited_conversations)
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
