"""What a client can make the server keep: every budget is filled twice, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from server.budgets import Budget, Kept
from tests.real_time import HANG_S, retried_under_load
from tests.server.budget_attacks import ATTACKS
from tests.server.live_server import connected, speak_one_turn

MAX_GROWTH_BYTES = 10 << 20
"""By how much the peak may be higher when a budget is filled again."""

MAX_DELAY_S = 1.0
"""A turn may take twice as long while a budget is filled, and so much longer."""


def test_the_oldest_values_of_an_owner_make_room_and_those_of_others_stay() -> None:
    now = 0.0
    kept = Kept[str](Budget(100, 60.0), lambda: now)
    kept.put("friend's", "x", 100, "friend")
    for name in "abc":
        kept.put(name, name, 40)
    assert [kept.get(name) for name in ("a", "b", "c", "friend's")] == [None, "b", "c", "x"]
    kept.put("too large", "x", 101)
    assert kept.get("too large") is None
    now = 30.0
    kept.put("b", "b", 40)
    kept.put("c", "later", 40, seconds=10.0)
    now = 45.0
    assert (kept.get("b"), kept.get("c")) == ("b", None)
    now = 91.0
    assert kept.get("b") is None and kept.get("friend's") is None
    kept.put("b", "again", 40)
    kept.remove("b")
    assert kept.get("b") is None


def test_the_total_of_all_owners_is_limited_and_the_one_with_most_makes_room() -> None:
    kept = Kept[str](Budget(100, 60.0, 150), lambda: 0.0)
    for name, owner in (("a", "greedy"), ("b", "greedy"), ("c", "modest"), ("d", "new")):
        kept.put(name, name, 45, owner)
    assert [kept.get(name) for name in "abcd"] == [None, "b", "c", "d"]
    assert kept.get("c", "modest") == "c" and kept.get("c", "greedy") is None
    assert kept.forget("modest") == ["c"] and kept.get("c") is None
    kept.put("e", "e", 45, "greedy")
    assert [kept.get(name) for name in "bde"] == ["b", "d", "e"]


def peak_bytes(process: Process) -> int:
    """The most memory that a process has had since `forget_peak`."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) << 10


def forget_peak(process: Process) -> None:
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")


@asynccontextmanager
async def started(module: str, *arguments: str) -> AsyncIterator[tuple[Process, StreamWriter, StreamReader]]:
    """A program of these tests, with its input and output. It ends with its input."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", module, *arguments, stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield process, process.stdin, process.stdout
        process.stdin.close()
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()


TOOL = f'''
def long_winded(name: str) -> str:
    """{"Say a name. " * 5000}"""
    return name
'''


@pytest.mark.parametrize("attack", list(ATTACKS))
@retried_under_load()
async def test_a_budget_that_is_filled_again_takes_no_more_memory_and_delays_nobody(
    attack: str, tiny_chat_checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "tools.py").write_text(TOOL)
    files = str(tiny_chat_checkpoint), str(tmp_path / "tools.py")
    async with started("tests.server.budget_server", *files) as (server, _, printed):
        address = (await printed.readline()).decode().strip()
        async with started("tests.server.budget_attacks", address) as (_, commands, answers):

            async def fill() -> None:
                commands.write(f"{attack}\n".encode())
                assert await answers.readline() == b"full\n"

            async with connected(address) as neighbour, asyncio.timeout(2 * HANG_S):

                async def turn_s() -> float:
                    began = time.monotonic()
                    assert (await speak_one_turn(neighbour))["response"]["status"] == "completed"
                    return time.monotonic() - began

                await turn_s()  # the first one takes longer
                quiet_s = await turn_s()
                forget_peak(server)
                await fill()
                first = peak_bytes(server)
                forget_peak(server)
                filling, turns_s = asyncio.create_task(fill()), []
                while not filling.done():
                    turns_s.append(await turn_s())
                await filling
                assert peak_bytes(server) <= first + MAX_GROWTH_BYTES
                assert max(turns_s) <= 2 * quiet_s + MAX_DELAY_S
