"""A client whose replica is gone comes back to another one: two servers share their records in a file. A client comes
back at the very moment when its connection ends."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from server.access.admission import Admission
from server.access.usage import NO_KEY
from server.context import ServerContext
from server.mcp_access import OWN_URL
from server.realtime import resumptions as resumptions_module
from server.realtime.conversation import RealtimeConversation
from server.realtime.resumable_session import Outbox, ResumableSession
from server.realtime.resumptions import Resumptions, new_token
from server.realtime.session_config import FunctionTool, McpServer, SessionConfig
from server.realtime.session_record import SessionRecord, items_as_heard
from server.shared_store import SharedRecords, SQLiteStore
from tests.fakes import FakeLanguageModel, fake_speech_models
from tests.real_time import wait_until
from tests.server.live_server import connected, receive, serving, speak_one_turn
from tests.server.realtime.test_resumable_session import coming_back, resumable
from voice.history import FunctionCall, FunctionCallOutput, Item, Span


@contextmanager
def two_replicas(
    path: Path, first: Admission, second: Admission, words: list[str] | None = None
) -> Iterator[tuple[str, str]]:
    """The addresses of two servers with the same records."""

    def new_language_model() -> FakeLanguageModel:
        return FakeLanguageModel(words, 0.001) if words is not None else FakeLanguageModel()

    records = [SharedRecords(SQLiteStore(path)), SharedRecords(SQLiteStore(path))]
    with (
        serving(admission=first, new_language_model=new_language_model, records=records[0]) as one,
        serving(admission=second, new_language_model=new_language_model, records=records[1]) as other,
    ):
        yield one, other
    for shared in records:
        shared.close()


@pytest.mark.parametrize("noticed", [True, False])
async def test_a_client_continues_its_conversation_on_another_replica(tmp_path: Path, noticed: bool) -> None:
    first, second = Admission(1), Admission(1)
    with two_replicas(tmp_path / "records.sqlite", first, second) as (one, other):
        async with connected(one) as client:
            session_id = (await receive(client, "session.created"))["session"]["id"]
            token = await resumable(client)
            update = {
                "type": "realtime",
                "instructions": "Talk like a pirate.",
                "audio": {"output": {"voice": "other"}},
            }
            await client.send(json.dumps({"type": "session.update", "session": update}))
            await receive(client, "session.updated")
            assert (await speak_one_turn(client))["response"]["status"] == "completed"
            watching = SQLiteStore(tmp_path / "records.sqlite")
            await wait_until(lambda: any(b"pirate" in one and b"Paris" in one for one in watching.scan("").values()))
            watching.close()
            if noticed:
                client.transport.abort()
            async with connected(other, **coming_back(token)) as new:
                session = (await receive(new, "session.created"))["session"]
                assert session["id"] == session_id and session["instructions"] == "Talk like a pirate."
                assert session["audio"]["output"]["voice"] == "other"
                items = (await receive(new, "rejoinder.resumed"))["items"]
                assert [item["role"] for item in items] == ["user", "assistant"]
                assert "capital" in items[0]["content"][0]["transcript"]
                assert (await receive(new, "rejoinder.resume"))["token"] != token
                assert (await speak_one_turn(new))["response"]["status"] == "completed"
                await wait_until(lambda: not first.slots)  # its session went on elsewhere
                assert len(second.slots) == 1
            await wait_until(lambda: not second.slots)
            async with connected(other, **coming_back(token)) as again:  # a token is good for one return
                assert (await receive(again, "session.created"))["session"]["id"] != session_id


async def test_the_history_holds_what_was_heard_when_the_replica_died(tmp_path: Path) -> None:
    path, words = tmp_path / "records.sqlite", [f" word{n}" for n in range(400)]
    with two_replicas(path, Admission(1), Admission(1), words) as (one, other):
        async with connected(one) as client:
            token = await resumable(client)
            await client.send(json.dumps({"type": "response.create"}))
            await receive(client, "response.output_audio.delta")
            watching = SQLiteStore(path)
            await wait_until(lambda: any(b"word1" in record for record in watching.scan("").values()))
            watching.close()
            async with connected(other, **coming_back(token)) as new:
                (item,) = (await receive(new, "rejoinder.resumed"))["items"]
                assert item["status"] == "completed"
                assert len(item["content"][0]["transcript"].split()) < 100
                new.transport.abort()
            client.transport.abort()  # closing would wait for audio that nobody reads


async def test_a_full_replica_leaves_the_conversation_to_others(tmp_path: Path) -> None:
    first, full = Admission(1), Admission(1)
    with two_replicas(tmp_path / "records.sqlite", first, full) as (one, other):
        async with connected(one) as client:
            token = await resumable(client)
            client.transport.abort()
        slot = full.reserve("realtime")
        async with connected(other, **coming_back(token)) as refused:
            assert (await receive(refused, "error"))["error"]["code"] == "too_many_conversations"
        slot.release()
        async with connected(other, **coming_back(token)) as client:
            assert (await receive(client, "rejoinder.resumed"))["items"] == []


async def test_a_client_secret_opens_a_session_on_another_replica(tmp_path: Path) -> None:
    with two_replicas(tmp_path / "records.sqlite", Admission(1), Admission(1)) as (one, other):
        async with httpx.AsyncClient() as web:
            body = {"session": {"instructions": "Talk like a pirate."}}
            secret = (await web.post(f"http://{one}/v1/realtime/client_secrets", json=body)).json()["value"]
        async with connected(other, additional_headers={"authorization": f"Bearer {secret}"}) as client:
            session = (await receive(client, "session.created"))["session"]
            assert session["instructions"] == "Talk like a pirate."
    assert secret.encode() not in (tmp_path / "records.sqlite").read_bytes()


async def test_conversations_go_on_while_the_records_are_unavailable(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "records.sqlite")
    store.close()
    with serving(records=SharedRecords(store)) as address:
        async with connected(address) as client:
            token = await resumable(client)
            assert (await speak_one_turn(client))["response"]["status"] == "completed"
            client.transport.abort()
        async with connected(address, **coming_back(token)) as client:
            assert len((await receive(client, "rejoinder.resumed"))["items"]) == 2


def test_a_record_survives_its_encoding_and_another_version_is_no_record() -> None:
    config = SessionConfig(tools=[FunctionTool(type="function", name="weather")])
    items = [
        Item("item_1", "user", "Hello", complete=True),
        Item("item_2", "assistant", "Hi there.", spans=[Span("Hi there.", 0, 800)], heard_ms=300, complete=True),
        FunctionCall("item_3", "call_1", "weather", "{}", complete=True),
        FunctionCallOutput("item_4", "call_1", "sunny"),
    ]
    record = SessionRecord("kitchen", "sess_1", config, items)
    assert SessionRecord.decode(record.encode()) == record
    assert SessionRecord.decode(b'{"version": 99}') is None


async def test_a_client_that_comes_back_to_another_replica_is_first_told_of_its_session() -> None:
    types: list[str] = []
    tools = [McpServer(type="mcp", server_label="rejoinder", server_url=OWN_URL)]
    config = SessionConfig(include=["rejoinder.listeners", "rejoinder.resume"], tools=tools)
    context = ServerContext(FakeLanguageModel, fake_speech_models(), "tiny")
    slot, record = context.admission.reserve("realtime"), SessionRecord("", "sess_1", config, [])
    conversation = RealtimeConversation(
        context, slot, lambda event: types.append(event.type), config, resume_token="token", restored=record
    )
    await asyncio.sleep(0.01)
    conversation.resumed("token")
    await conversation._mcp.own_listed()
    assert types[:4] == ["session.created", "rejoinder.resumed", "rejoinder.listeners", "rejoinder.resume"]
    assert types[-1] == "mcp_list_tools.completed"
    await conversation.close()


def test_items_end_where_the_user_stopped_hearing_them() -> None:
    playing = Item("item_1", "assistant", "Once upon a time", spans=[Span("Once upon a time", 0, 1600)])
    heard, made = items_as_heard(
        [playing, FunctionCall("item_2", "call_1", "weather", '{"ci'), FunctionCallOutput("item_3", "call_0", "ok")],
        {"item_1": 800.0},
    )
    assert isinstance(heard, Item) and heard.heard_text == "Once" and heard.complete
    assert made.id == "item_3" and not playing.complete


class Conversation:
    """A conversation that its client may come back to."""

    resumable, closed = True, False

    def __init__(self, session_id: str = "sess_1") -> None:
        self.session_id = session_id

    def record(self, key: str) -> SessionRecord:
        return SessionRecord(key, self.session_id, SessionConfig(), [])

    def disconnected(self) -> None:
        pass

    async def close(self) -> None:
        self.closed = True


def connected_session(resumptions: Resumptions, session_id: str = "sess_1") -> ResumableSession:
    conversation: Any = Conversation(session_id)
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


async def test_a_session_that_cannot_be_recorded_leaves_the_records_of_the_others(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "records.sqlite")
    resumptions = Resumptions(60, SharedRecords(store), lambda: 8)
    keeping = asyncio.create_task(resumptions.keep_records())
    connected_session(resumptions, "half of a pair: \ud800")
    connected_session(resumptions)
    await wait_until(lambda: len(store.scan("session/")) == 1)
    assert not keeping.done()
    keeping.cancel()
    store.close()


async def test_a_session_ends_although_its_record_cannot_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slot would be taken for ever."""
    resumptions = Resumptions(0.01, SharedRecords(), lambda: 8)

    async def fails(token: str) -> None:
        raise RuntimeError("no such file")

    monkeypatch.setattr(resumptions, "_forget", fails)
    session = connected_session(resumptions)
    await resumptions.park(session)
    await wait_until(lambda: session.conversation.closed)  # type: ignore[attr-defined]


@pytest.mark.parametrize("elsewhere_first", [True, False])
async def test_of_two_returns_at_the_same_moment_one_gets_the_session(tmp_path: Path, elsewhere_first: bool) -> None:
    store = SQLiteStore(tmp_path / "records.sqlite")
    one, other = (Resumptions(60, SharedRecords(store), lambda: 8) for _ in range(2))
    keeping = asyncio.create_task(one.keep_records())
    session = connected_session(one)
    token = session.token
    await wait_until(lambda: bool(store.scan("session/")))
    returning = asyncio.create_task(one.take(token, NO_KEY))  # waits for the old connection to end
    await wait_until(session.displaced.is_set)
    if elsewhere_first:
        assert await other.take_record(token, NO_KEY) is not None
    session.detached.set()
    assert await returning is (None if elsewhere_first else session)
    assert session.conversation.closed is elsewhere_first  # type: ignore[attr-defined]
    assert await other.take_record(token, NO_KEY) is None and await one.take(token, NO_KEY) is None
    await wait_until(lambda: len(store.scan("session/")) == (not elsewhere_first))
    keeping.cancel()
    store.close()


class SlowStore(SQLiteStore):
    """Writes when it is told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.writing, self.may_write = threading.Event(), threading.Event()

    def put(self, key: str, value: bytes, seconds: float) -> bool:
        self.writing.set()
        self.may_write.wait()
        return super().put(key, value, seconds)


async def test_a_record_that_is_written_while_its_session_is_taken_is_no_second_return(tmp_path: Path) -> None:
    store = SlowStore(tmp_path / "records.sqlite")
    one, other = (Resumptions(60, SharedRecords(store), lambda: 8) for _ in range(2))
    keeping = asyncio.create_task(one.keep_records())
    session = connected_session(one)
    token = session.token
    await wait_until(store.writing.is_set)
    session.detached.set()
    assert await one.take(token, NO_KEY) is session
    store.may_write.set()
    await wait_until(lambda: bool(store.scan("session/")))  # with the new token
    assert await other.take_record(token, NO_KEY) is None
    assert not session.conversation.closed and not session.detached.is_set()  # type: ignore[attr-defined]
    keeping.cancel()
    store.close()
