"""Turns of real conversations: kept, pruned, without words where none are wanted, and never in a conversation's way."""

from __future__ import annotations

import logging
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import pytest

from server import timelines
from server.report.live import measurements
from server.timelines import TimelineStore, TurnRecord, read, said_before
from tests.fakes import virtually
from tests.server.test_realtime import Client, one_turn
from voice import session
from voice.history import Item

RECORD = TurnRecord(
    "turn_1", 1e9, 640.0, {"end_of_turn": 300.0}, {"guesses": 2, "guess_kept": True}, "completed", "Hello?", "Hello."
)


def now(record: TurnRecord = RECORD) -> TurnRecord:
    return replace(record, at=time.time())


def test_what_was_kept_is_read_again(tmp_path: Path) -> None:
    store = TimelineStore(tmp_path / "turns.sqlite")
    kept = [now(), replace(now(), turn_id="turn_2", latency_ms=None)]
    for record in kept:
        store.keep(record)
    store.close()
    assert read(tmp_path / "turns.sqlite") == kept
    (turn,) = measurements(tmp_path / "turns.sqlite")  # what was never spoken has no latency
    assert (turn.latency_ms, turn.guesses, turn.guess_kept, turn.kind, turn.heard) == (640, 2, True, "live", "Hello?")


def test_no_words_are_kept_where_none_are_wanted(tmp_path: Path) -> None:
    store = TimelineStore(tmp_path / "turns.sqlite", keep_text=False)
    store.keep(now())
    store.close()
    (record,) = read(tmp_path / "turns.sqlite")
    assert (record.transcript, record.answer, record.latency_ms) == (None, None, 640)
    assert b"Hello" not in (tmp_path / "turns.sqlite").read_bytes()


def test_old_turns_are_deleted_at_the_start_and_once_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "turns.sqlite"
    store = TimelineStore(path)
    store.keep(replace(RECORD, at=time.time() - 40 * 86_400))
    store.keep(replace(RECORD, at=time.time() - 20 * 86_400))
    store.close()
    assert len(read(path)) == 2
    store = TimelineStore(path, keep_days=30)
    assert len(read(path)) == 1
    monkeypatch.setattr(timelines, "_DAY_S", -1.0)
    store.keep(replace(RECORD, at=time.time() - 31 * 86_400))
    store.close()
    assert len(read(path)) == 1


def test_a_broken_disk_is_said_once_and_breaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = TimelineStore(tmp_path / "turns.sqlite")

    def fails(path: Path) -> sqlite3.Connection:
        raise sqlite3.OperationalError("the disk is full")

    monkeypatch.setattr(timelines, "_opened", fails)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            store.keep(now())
        store.close()
    assert len([record for record in caplog.records if "are not kept" in record.getMessage()]) == 1


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"this is no database, and it is long enough to be told from one." * 20)
    with pytest.raises(OSError, match="cannot be used"):
        TimelineStore(tmp_path / "x")
    with pytest.raises(OSError, match="is no timelines file"):
        read(tmp_path / "x")
    with pytest.raises(OSError, match="there is no timelines file"):
        read(tmp_path / "y")


def test_the_words_before_an_answer_are_the_users_last() -> None:
    asked, answer = Item("1", "user", "How are you?"), Item("2", "assistant", "Fine.")
    assert (
        said_before([Item("0", "user", "Hello."), asked, answer, Item("3", "user", "Bye.")], answer) == "How are you?"
    )
    assert said_before([asked], answer) == ""


def test_every_turn_of_a_conversation_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    from server.realtime import RealtimeConversation
    from tests.fakes import LoudnessDetector, fake_stages

    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)
    kept: list[TurnRecord] = []

    async def work() -> None:
        client = Client()
        await client.conversation.close()
        client.conversation = RealtimeConversation(client.brain, fake_stages(), "tiny", client.take, kept.append)
        await one_turn(client)
        await client.conversation.close()

    virtually(work)
    (record,) = kept
    assert (record.status, record.transcript) == ("completed", "What is the capital of France?")
    assert record.answer is not None and record.answer.strip() == "The capital of France is Paris."
    assert record.latency_ms is not None and record.told["cached_tokens"] == 20
