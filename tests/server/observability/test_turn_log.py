"""The turn log: recording, pruning, recording without text; it never disturbs a conversation."""

from __future__ import annotations

import logging
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from server.observability import turn_log as turn_log_module
from server.observability.turn_log import TurnLog, TurnRecord, last_user_text, read_turn_log
from tests.fakes import run_on_virtual_clock
from tests.server.realtime.conversation_client import Client, one_turn
from voice import session
from voice.history import Item

RECORD = TurnRecord(
    "turn_1", 1e9, 640.0, {"end_of_turn": 300.0}, {"guesses": 2, "guess_kept": True}, "completed", "Hello?", "Hello."
)


def recent(record: TurnRecord = RECORD) -> TurnRecord:
    return replace(record, ended_at=time.time())


def test_recorded_turns_can_be_read(tmp_path: Path) -> None:
    log = TurnLog(tmp_path / "turns.sqlite")
    records = [recent(), replace(recent(), turn_id="turn_2", latency_ms=None)]
    for record in records:
        log.record(record)
    log.close()
    assert read_turn_log(tmp_path / "turns.sqlite") == records


def test_a_log_without_text_contains_no_words(tmp_path: Path) -> None:
    log = TurnLog(tmp_path / "turns.sqlite", keep_text=False)
    log.record(recent())
    log.close()
    (record,) = read_turn_log(tmp_path / "turns.sqlite")
    assert (record.transcript, record.response, record.latency_ms) == (None, None, 640)
    assert b"Hello" not in (tmp_path / "turns.sqlite").read_bytes()


def test_old_turns_are_deleted_at_the_start_and_once_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "turns.sqlite"
    log = TurnLog(path)
    log.record(replace(RECORD, ended_at=time.time() - 40 * 86_400))
    log.record(replace(RECORD, ended_at=time.time() - 20 * 86_400))
    log.close()
    assert len(read_turn_log(path)) == 2
    log = TurnLog(path, keep_days=30)
    assert len(read_turn_log(path)) == 1
    monkeypatch.setattr(turn_log_module, "_DAY_S", -1.0)
    log.record(replace(RECORD, ended_at=time.time() - 31 * 86_400))
    log.close()
    assert len(read_turn_log(path)) == 1


def test_a_disk_error_is_logged_once_and_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = TurnLog(tmp_path / "turns.sqlite")

    def fails(path: Path) -> sqlite3.Connection:
        raise sqlite3.OperationalError("the disk is full")

    monkeypatch.setattr(turn_log_module, "_open", fails)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            log.record(recent())
        log.close()
    assert len([record for record in caplog.records if "cannot record turns" in record.getMessage()]) == 1


def test_a_turn_that_cannot_be_written_costs_no_other(tmp_path: Path) -> None:
    log = TurnLog(tmp_path / "turns.sqlite")
    log.record(replace(recent(), details={"a set": {1}}))  # no JSON
    log.record(recent())
    log.close()
    assert log.dropped == 1
    assert len(read_turn_log(tmp_path / "turns.sqlite")) == 1


def test_a_file_that_is_not_a_turn_log_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"This is not a database, but long enough to be recognized as such." * 20)
    with pytest.raises(OSError, match="cannot use the turn log"):
        TurnLog(tmp_path / "x")
    with pytest.raises(OSError, match="is not a turn log"):
        read_turn_log(tmp_path / "x")
    with pytest.raises(OSError, match="there is no turn log"):
        read_turn_log(tmp_path / "y")


def test_the_text_before_a_response_is_the_users_last_one() -> None:
    question, response = Item("1", "user", "How are you?"), Item("2", "assistant", "Fine.")
    assert (
        last_user_text([Item("0", "user", "Hello."), question, response, Item("3", "user", "Bye.")], response)
        == "How are you?"
    )
    assert last_user_text([question], response) == ""


def test_every_turn_of_a_conversation_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.fakes import LoudnessDetector

    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)
    records: list[TurnRecord] = []

    async def work() -> None:
        client = Client(observe=records.append)
        await one_turn(client)
        await client.conversation.close()

    run_on_virtual_clock(work)
    (record,) = records
    assert (record.status, record.transcript) == ("completed", "What is the capital of France?")
    assert record.response is not None and record.response.strip() == "The capital of France is Paris."
    assert record.latency_ms is not None and record.details["cached_tokens"] == 20


def test_a_log_of_an_earlier_version_is_read_and_continued(tmp_path: Path) -> None:
    path = tmp_path / "turns.sqlite"
    with sqlite3.connect(path) as file:
        file.execute(
            "create table turns (turn_id text not null, at real not null, latency_ms real, stages_ms text not null, "
            "told text not null, status text not null, transcript text, answer text)"
        )
        file.execute("insert into turns values ('old', ?, 1.0, '{}', '{}', 'completed', 'a', 'b')", (time.time(),))
    assert read_turn_log(path)[0].turn_id == "old"
    log = TurnLog(path)
    log.record(replace(recent(), key="alice", caller="+1"))
    log.close()
    assert [(turn.turn_id, turn.key, turn.caller) for turn in read_turn_log(path)] == [
        ("old", "", ""),
        ("turn_1", "alice", "+1"),
    ]


def test_nobody_else_can_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "turns.sqlite"
    path.touch(mode=0o644)  # an earlier version left it to the umask
    with closing(TurnLog(path)):
        assert path.stat().st_mode & 0o777 == 0o600
