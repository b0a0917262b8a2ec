"""`rejoinder data delete`."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from agent.tools.user_data import UserData, owner_id
from cli.main import app as cli
from model.engine.engine import Engine
from server.access.admission import Admission
from server.access.keys import ApiKey, ApiKeys, KeyStore
from server.access.usage import Usage, UsageLog, read_usage
from server.chat_completions.responses import Responses
from server.observability.turn_log import TurnLog, TurnRecord, read_turn_log
from server.realtime.client_secrets import ClientSecrets
from server.realtime.session_config import McpServer, SessionConfig
from server.realtime.session_record import SessionRecord
from server.shared_store import SharedRecords, SQLiteStore
from tests.real_time import HANG_S
from tests.server.live_server import serving
from voice.history import Item


def delete(data: Path, *arguments: str) -> str:
    command = ["data", "delete", "--data", str(data), *arguments]
    done = CliRunner().invoke(cli, command, env={"COLUMNS": "200", "NO_COLOR": "1"})
    return " ".join(done.output.split())


def kept(folder: Path, name: str = "") -> bytes:
    """What every file of a folder holds whose name begins like this."""
    return b"".join(file.read_bytes() for file in folder.glob(f"{name}*"))


def test_everything_of_a_key_or_a_caller_is_deleted_and_nothing_else(tmp_path: Path) -> None:
    path, now = tmp_path / "turns.sqlite", time.time()
    log, usage = TurnLog(path), UsageLog(tmp_path / "usage.sqlite")
    for key, caller in (("alice", ""), ("bob", ""), ("", "+15550100"), ("", "+15550199")):
        text = f"words of {key}{caller}"
        log.record(TurnRecord("turn", now, 500.0, {}, {}, "completed", text, text, key, caller))
        usage.add(key, Usage(turns=1))
    log.close()
    usage.close()
    notes = UserData(tmp_path / "user_data.sqlite")
    through_key = owner_id("phone", "+15550100") + "@pbx"
    for owner in (owner_id("key", "alice"), owner_id("key", "bob"), owner_id("phone", "+15550100"), through_key):
        notes.add_note(owner, "milk of owner " + owner, now)
    assert "Deleted 1 turns, 1 days" in delete(tmp_path, "--key", "alice", "--turn-log", str(path))
    assert "Deleted 1 turns, 0 days" in delete(tmp_path, "--caller", "+15550100", "--turn-log", str(path))
    assert [(turn.key, turn.caller) for turn in read_turn_log(path)] == [("bob", ""), ("", "+15550199")]
    assert [key for _, key, _ in read_usage(tmp_path / "usage.sqlite")] == ["", "bob"]
    assert notes.notes(through_key) == []
    left = {
        name: len(notes.notes(owner_id(*name))) for name in (("key", "alice"), ("key", "bob"), ("phone", "+15550100"))
    }
    assert left == {("key", "alice"): 0, ("key", "bob"): 1, ("phone", "+15550100"): 0}
    for words in ("words of alice", f"owner {owner_id('key', 'alice')}", "words of +15550100"):
        assert words.encode() not in kept(tmp_path)
    assert f"owner {owner_id('key', 'bob')}".encode() in kept(tmp_path)
    notes.close()


def test_the_notes_of_callers_are_deleted_with_the_key_that_brought_them(tmp_path: Path) -> None:
    notes = UserData(tmp_path / "user_data.sqlite")
    owners = [owner_id("phone", "+15550100") + through for through in ("", "@pbx", "@old-pbx")]
    for owner in owners:
        notes.add_note(owner, "milk", 0.0)
    assert "1 timers, reminders and notes" in delete(tmp_path, "--key", "pbx")
    assert [len(notes.notes(owner)) for owner in owners] == [1, 0, 1]
    notes.close()


def test_the_records_of_calls_are_deleted_by_caller_and_by_key_and_those_that_are_over_in_any_case(
    tmp_path: Path,
) -> None:
    path, now = tmp_path / "records.sqlite", [time.time()]
    store = SQLiteStore(path, lambda: now[0])
    for number, (key, caller) in enumerate([("pbx", "+15550100"), ("pbx", "+15550199"), ("", "+15550100"), ("", "")]):
        items: list[Any] = [Item("item_1", "user", f"the words of call {number}")]
        record = SessionRecord(key, "sess_1", SessionConfig(), items, caller)
        store.put(f"call/{number}", record.encode(), 60)
    store.put(
        "call/9", SessionRecord("", "s", SessionConfig(), [Item("i", "user", "the words of an old call")]).encode(), 0
    )
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for file in tmp_path.glob("records.sqlite*"):  # as a killed process leaves them
        (crashed / file.name).write_bytes(file.read_bytes())
    store.close()
    assert b"the words of an old call" in kept(crashed)
    delete(crashed, "--caller", "+15550100", "--records", str(crashed / path.name))
    left = [number for number in range(4) if f"the words of call {number}".encode() in kept(crashed)]
    assert left == [1, 3] and b"the words of an old call" not in kept(crashed)
    delete(crashed, "--key", "pbx", "--records", str(crashed / path.name))
    assert [number for number in range(4) if f"the words of call {number}".encode() in kept(crashed)] == [3]


@pytest.mark.parametrize("name", ["user_data.sqlite", "usage.sqlite", "turns.sqlite", "records.sqlite"])
def test_a_file_that_another_process_reads_is_not_said_to_be_erased(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.storage._BUSY_TIMEOUT_S", 0.05)
    monkeypatch.setattr("agent.storage._BUSY_TIMEOUT_S", 0.05)
    path, now, key = tmp_path / name, time.time(), "lighthouse"
    data, usage = UserData(tmp_path / "user_data.sqlite"), UsageLog(tmp_path / "usage.sqlite")
    log, store = TurnLog(tmp_path / "turns.sqlite"), SQLiteStore(tmp_path / "records.sqlite")
    data.add_note(owner_id("key", key), f"a note of the {key}", now)
    usage.add(key, Usage(turns=1))
    usage.save()
    log.record(TurnRecord("turn", now, 500.0, {}, {}, "completed", "", "", key))
    log.close()
    store.put("session/1", SessionRecord(key, "sess_1", SessionConfig(), []).encode(), 60)
    files = ["--turn-log", str(tmp_path / "turns.sqlite"), "--records", str(tmp_path / "records.sqlite")]
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("begin").execute("select * from sqlite_master").fetchall()
        said = delete(tmp_path, "--key", key, *files)
        assert f"{path} still holds what was deleted, as another process reads it: run this again" in said
        assert said.count("still holds") == 1
        assert key.encode() in kept(tmp_path, name)
    assert "Nothing was kept of this key." in delete(tmp_path, "--key", key, *files)
    assert key.encode() not in kept(tmp_path, "[!k]")  # the name of the key itself stays
    data.close()
    usage.close()
    store.close()


def test_records_of_other_versions_are_deleted_and_so_are_those_with_the_token(tmp_path: Path) -> None:
    path, token = tmp_path / "records.sqlite", tmp_path / "token"
    store = SQLiteStore(path)
    own = McpServer(type="mcp", server_label="own", server_url="rejoinder:tools", authorization="s3crèt")
    browser = SessionRecord("", "s", SessionConfig(tools=[own]), [Item("i", "user", "what a browser said")])
    records: dict[str, object] = {
        "session/1": {"key": "alice", "caller": "", "text": "a renamed field"},
        "call/1": {"key": "", "caller": "+15550100", "text": "words on the telephone"},
        "client_secret/1": {"key": {"name": "alice"}, "text": "a new kind of configuration"},
        "session/3": {"key": "bob", "caller": "", "text": "what bob said"},
        "conversations/1": {"alice": 2, "key": 1},
        "other": [1],
    }
    for name, record in records.items():
        store.put(name, json.dumps(record, ensure_ascii=False).encode(), 60)
    store.put("session/2", browser.encode(), 60)
    store.put("broken", b"{", 60)
    token.write_text("s3crèt\n")
    texts = ["a renamed field", "a new kind", "words on the telephone", "what a browser said"]
    for options, deleted in (
        (("--key", "alice"), 2),
        (("--caller", "+15550100"), 3),
        (("--token", str(token)), 4),
    ):
        assert " records." in delete(tmp_path, *options, "--records", str(path))
        assert [text.encode() not in kept(tmp_path, "records") for text in texts] == [n < deleted for n in range(4)]
    assert set(store.scan("")) == {"session/3", "conversations/1", "other", "broken"}
    store.close()


def test_a_token_names_an_owner_and_is_read_from_a_file(tmp_path: Path) -> None:
    notes, token = UserData(tmp_path / "user_data.sqlite"), tmp_path / "token"
    for name in ("s3cret", "another"):
        notes.add_note(owner_id("token", name), f"the note of {name}", 0.0)
    token.write_text("s3cret\n")
    assert "1 timers, reminders and notes" in delete(tmp_path, "--token", str(token))
    assert b"the note of s3cret" not in kept(tmp_path) and b"the note of another" in kept(tmp_path)
    notes.close()


def test_the_records_of_a_keys_sessions_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    store = SQLiteStore(path)
    for key in ("alice", "bob"):
        items: list[Any] = [Item("item_1", "user", f"the words of {key}")]
        store.put(f"session/{key}", SessionRecord(key, "sess_1", SessionConfig(), items).encode(), 60)
    secrets = ClientSecrets(records=SharedRecords(store))
    for key in ("alice", "bob"):
        config = SessionConfig(instructions=f"the instructions of {key}")
        asyncio.run(secrets.create(config, 600, ApiKey(key)))
    delete(tmp_path, "--key", "alice", "--records", str(path))
    for what in ("words", "instructions"):
        assert f"the {what} of alice".encode() not in kept(tmp_path)
        assert f"the {what} of bob".encode() in kept(tmp_path)
    store.close()


@pytest.mark.parametrize("revoked", [False, True])
def test_a_running_server_forgets_what_it_keeps_for_the_key(
    revoked: bool, tiny_engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.access.admission._CHECK_INTERVAL_S", 0.05)
    stored = list[Any]()
    forgotten = threading.Event()

    async def forget(responses: Responses, key: str) -> None:
        responses._stored.forget(key)
        stored.extend(responses._stored._entries.values())
        forgotten.set()

    monkeypatch.setattr(Responses, "forget", forget)
    keys, records = KeyStore(tmp_path / "keys.sqlite"), SQLiteStore(tmp_path / "records.sqlite")
    secrets = {name: keys.add(name) for name in ("alice", "bob")}
    admission = Admission(keys=ApiKeys(store=keys))
    with serving(engine=tiny_engine, admission=admission, records=SharedRecords(records)) as address:
        for name, secret in secrets.items():
            with httpx.Client(headers={"authorization": f"Bearer {secret}"}, base_url=f"http://{address}/v1") as web:
                asked = {"input": f"A sentence of {name}", "max_output_tokens": 1}
                assert web.post("/responses", json=asked).status_code == 200
                session = {"session": {"instructions": f"A sentence of {name}"}}
                assert web.post("/realtime/client_secrets", json=session).status_code == 200
        if revoked:
            keys.revoke("alice")
        else:
            delete(tmp_path, "--key", "alice")
        assert forgotten.wait(HANG_S)
    assert {entry.owner for entry in stored} == {"bob"}
    assert b"A sentence of alice" not in kept(tmp_path) and b"A sentence of bob" in kept(tmp_path)
    keys.close()


def test_what_the_server_deletes_leaves_nothing_in_its_files(tmp_path: Path) -> None:
    now = [time.time()]
    data, store = UserData(tmp_path / "user_data.sqlite"), SQLiteStore(tmp_path / "records.sqlite", lambda: now[0])
    old = TurnRecord("turn", now[0] - 90_000, 500.0, {}, {}, "completed", "a secret sentence", "a secret sentence")
    log = TurnLog(tmp_path / "turns.sqlite")
    log.record(old)
    log.close()
    store.put("session/1", b"a secret sentence", 60)
    data.add_note("alice", "a secret sentence", 0.0)
    data.add_alarm("alice", "reminder", "a secret sentence", 0.0, 1.0)
    assert kept(tmp_path).count(b"a secret sentence") >= 5
    data.remove_notes("alice")
    data.remove_alarm("alice", data.alarms("alice")[0].id)
    now[0] += 100
    store.put("session/2", b"of somebody else", 60)
    log = TurnLog(tmp_path / "turns.sqlite", keep_days=1)
    assert b"a secret sentence" not in kept(tmp_path)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    log.close()
    store.close()
    data.close()


def test_a_file_that_another_process_writes_is_said_to_be_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    UserData(tmp_path / "user_data.sqlite").close()
    monkeypatch.setattr("agent.storage._BUSY_TIMEOUT_S", 0.05)
    with closing(sqlite3.connect(tmp_path / "user_data.sqlite", isolation_level=None)) as writer:
        writer.execute("begin immediate")
        said = delete(tmp_path, "--key", "alice")
    assert "a file in use cannot be changed now (database is locked): try again" in said


def test_mistakes_are_reported_in_one_sentence(tmp_path: Path) -> None:
    assert "give one of --key NAME, --caller NUMBER and --token FILE" in delete(tmp_path)
    assert "there is no turn log" in delete(tmp_path, "--key", "x", "--turn-log", str(tmp_path / "missing"))
    assert "there are no records at" in delete(tmp_path, "--key", "x", "--records", str(tmp_path / "missing"))
    assert list(tmp_path.iterdir()) == []
    for empty in ("--key", "--caller"):
        assert "the name, number or token is empty" in delete(tmp_path, empty, "")
