"""Usage by key and day."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from server.access.usage import Usage, UsageLog, delete_usage, read_usage

DAY_S = 86_400.0


class Clock:
    now = 20_000 * DAY_S

    def __call__(self) -> float:
        return self.now


def test_usage_adds_up_by_key_and_day(tmp_path: Path) -> None:
    path, clock = tmp_path / "usage.sqlite", Clock()
    log = UsageLog(path, clock)
    log.add("alice", Usage(turns=1, input_tokens=10, output_tokens=5))
    log.add("bob", Usage(seconds=60))
    log.save()
    log.add("alice", Usage(turns=2, input_tokens=1))
    assert (log.today("alice").turns, log.today("alice").tokens) == (3, 16)
    clock.now += DAY_S
    assert log.today("alice") == Usage()
    log.add("alice", Usage(turns=5))
    log.close()
    rows = read_usage(path)
    assert [(key, usage.turns) for _, key, usage in rows] == [("alice", 3), ("bob", 0), ("alice", 5)]
    assert len(read_usage(path, rows[-1][0])) == 1


def test_a_restarted_server_knows_what_was_used_today(tmp_path: Path) -> None:
    path, clock = tmp_path / "usage.sqlite", Clock()
    log = UsageLog(path, clock)
    log.add("alice", Usage(seconds=90))
    log.close()
    assert UsageLog(path, clock).today("alice").seconds == 90


def test_servers_that_share_a_file_know_what_each_other_counted(tmp_path: Path) -> None:
    first, second = UsageLog(tmp_path / "usage.sqlite"), UsageLog(tmp_path / "usage.sqlite")
    first.add("kitchen", Usage(turns=2))
    first.save()
    second.add("kitchen", Usage(turns=1))
    second.save()
    assert second.today("kitchen").turns == 3
    first.add("kitchen", Usage(turns=1))
    first.save()
    assert first.today("kitchen").turns == 4


def test_what_could_not_be_written_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "usage.sqlite"
    log = UsageLog(path)
    log.add("alice", Usage(turns=1))

    class FullDisk:
        def __enter__(self) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        def __exit__(self, *_: object) -> None: ...

    file = log._file
    monkeypatch.setattr(log, "_file", FullDisk())
    log.save()
    log.save()
    assert len(caplog.records) == 1  # one message, not one every two seconds
    log.add("alice", Usage(turns=1))
    monkeypatch.setattr(log, "_file", file)
    log.close()
    assert read_usage(path)[0][2].turns == 2


def test_the_usage_of_a_key_can_be_deleted(tmp_path: Path) -> None:
    path = tmp_path / "usage.sqlite"
    log = UsageLog(path)
    log.add("alice", Usage(turns=1))
    log.add("bob", Usage(turns=1))
    log.close()
    assert delete_usage(path, "alice") == 1
    assert [key for _, key, _ in read_usage(path)] == ["bob"]
    with pytest.raises(OSError, match="no record of usage"):
        read_usage(tmp_path / "missing")


def test_a_file_of_an_earlier_version_gets_the_columns_that_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "usage.sqlite"
    columns = "day text, key text, conversations int, seconds real, audio_in_s real, audio_out_s real, turns int, "
    columns += "completions int, input_tokens int, cached_tokens int, output_tokens int, cpu_s real"
    with sqlite3.connect(path) as file:
        file.execute(f"create table usage ({columns}, primary key (day, key))")
        file.execute("insert into usage values ('2026-01-01', 'alice', 1, 60, 1, 1, 2, 0, 10, 0, 5, 1)")
    log = UsageLog(path)
    log.add("alice", Usage(remote_requests=1, remote_input_tokens=7))
    log.close()
    (_, _, old), (_, _, new) = read_usage(path)
    assert (old.turns, old.remote_requests, new.remote_input_tokens, new.tokens) == (2, 0, 7, 7)
