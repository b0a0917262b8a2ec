"""A client that comes back at the very moment when its connection ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from server.access.admission import Admission
from server.access.usage import NO_KEY
from server.realtime import resumptions as resumptions_module
from server.realtime.resumable_session import Outbox, ResumableSession
from server.realtime.resumptions import Resumptions, new_token
from server.realtime.session_config import SessionConfig
from server.realtime.session_record import SessionRecord
from server.shared_store import SharedRecords, SQLiteStore
from tests.real_time import wait_until


class Conversation:
    """A conversation that its client may come back to."""

    resumable, closed = True, False

    def record(self, key: str) -> SessionRecord:
        return SessionRecord(key, "sess_1", SessionConfig(), [])

    def disconnected(self) -> None:
        pass

    async def close(self) -> None:
        self.closed = True


def connected_session(resumptions: Resumptions) -> ResumableSession:
    conversation: Any = Conversation()
    session = ResumableSession(conversation, Outbox(), Admission().reserve("realtime"), new_token())
    session.attach()
    resumptions.add(session)
    return session


@pytest.fixture
def resumptions() -> Resumptions:
    return Resumptions(60, SharedRecords(), lambda: 8)


async def test_a_connection_that_drops_meanwhile_leaves_the_session_to_the_client(resumptions: Resumptions) -> None:
    session = connected_session(resumptions)
    returning = asyncio.create_task(resumptions.take(session.token, NO_KEY))
    await wait_until(session.displaced.is_set)
    await resumptions.park(session)
    assert await returning is session
    assert not session.slot.parked and not session.detached.is_set()


async def test_a_client_does_not_wait_for_a_session_that_ends_meanwhile(resumptions: Resumptions) -> None:
    session = connected_session(resumptions)
    returning = asyncio.create_task(resumptions.take(session.token, NO_KEY))
    await wait_until(session.displaced.is_set)
    await resumptions.end(session)
    assert await returning is None and session.conversation.closed  # type: ignore[attr-defined]


async def test_a_session_that_ends_while_it_goes_on_elsewhere_holds_up_no_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resumptions_module, "_REFRESH_S", 0.0)
    store = SQLiteStore(tmp_path / "records.sqlite")
    one, other = (Resumptions(60, SharedRecords(store), lambda: 8) for _ in range(2))
    keeping = asyncio.create_task(one.keep_records())
    session = connected_session(one)
    await wait_until(lambda: bool(store.scan("session/")))
    assert await other.take_record(session.token, NO_KEY) is not None
    await wait_until(session.displaced.is_set)
    await one.end(session)
    await wait_until(lambda: session.conversation.closed)  # type: ignore[attr-defined]
    connected_session(one)
    await wait_until(lambda: bool(store.scan("session/")))
    keeping.cancel()
    store.close()
