"""What the server keeps survives a process that is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from server.access.keys import KeyStore
from server.access.usage import read_usage
from server.observability.turn_log import read_turn_log

PROGRAM = """
import os, pathlib, signal, sys, time
from server.access.keys import KeyStore
from server.access.usage import Usage, UsageLog
from server.observability.turn_log import TurnLog, TurnRecord, read_turn_log

folder = pathlib.Path(sys.argv[1])
keys, usage, turns = KeyStore(folder / "keys"), UsageLog(folder / "usage"), TurnLog(folder / "turns")
for n in range(20):
    keys.add(f"key-{n}")
    usage.add("alice", Usage(turns=1))
    usage.save()
    turns.record(TurnRecord(f"turn {n}", time.time(), 600.0, {}))
while len(read_turn_log(folder / "turns")) < 20:
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_keys_usage_and_turns_survive_kill_9(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], cwd=root, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert len(KeyStore(tmp_path / "keys").all_keys()) == 20
    ((_, _, usage),) = read_usage(tmp_path / "usage")
    assert usage.turns == 20
    assert [turn.turn_id for turn in read_turn_log(tmp_path / "turns")] == [f"turn {n}" for n in range(20)]
