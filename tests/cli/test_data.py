"""`rejoinder data delete`."""

from __future__ import annotations

import time
from pathlib import Path

from typer.testing import CliRunner

from agent.tools.user_data import UserData, owner_id
from cli.main import app as cli
from server.access.usage import Usage, UsageLog, read_usage
from server.observability.turn_log import TurnLog, TurnRecord, read_turn_log


def delete(data: Path, *arguments: str) -> str:
    command = ["data", "delete", "--data", str(data), *arguments]
    done = CliRunner().invoke(cli, command, env={"COLUMNS": "200", "NO_COLOR": "1"})
    return " ".join(done.output.split())


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
        notes.add_note(owner, "milk", now)
    assert "Deleted 1 turns, 1 days" in delete(tmp_path, "--key", "alice", "--turn-log", str(path))
    assert "Deleted 1 turns, 0 days" in delete(tmp_path, "--caller", "+15550100", "--turn-log", str(path))
    assert [(turn.key, turn.caller) for turn in read_turn_log(path)] == [("bob", ""), ("", "+15550199")]
    assert [key for _, key, _ in read_usage(tmp_path / "usage.sqlite")] == ["", "bob"]
    assert notes.notes(through_key) == []
    left = {
        name: len(notes.notes(owner_id(*name))) for name in (("key", "alice"), ("key", "bob"), ("phone", "+15550100"))
    }
    assert left == {("key", "alice"): 0, ("key", "bob"): 1, ("phone", "+15550100"): 0}
    notes.close()
    assert b"words of alice" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_mistakes_are_reported_in_one_sentence(tmp_path: Path) -> None:
    assert "give either --key NAME or --caller NUMBER" in delete(tmp_path)
    assert "there is no turn log" in delete(tmp_path, "--key", "x", "--turn-log", str(tmp_path / "missing"))
