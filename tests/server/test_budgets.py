"""What a client can make the server keep: every budget is filled twice, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

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


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had since `forget_peak`."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) << 10


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


@contextmanager
def started(module: str, *arguments: str) -> Iterator[Popen[str]]:
    """A program of these tests. It ends with its input."""
    with Popen([sys.executable, "-m", module, *arguments], stdin=PIPE, stdout=PIPE, text=True, bufsize=1) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


TOOL = f'''
def long_winded(name: str) -> str:
    """{"Say a name. " * 5000}"""
    return name
'''


@pytest.fixture(scope="module")
def server(tiny_chat_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """The process and the address of a server whose memory is that of nothing else."""
    tools = tmp_path_factory.mktemp("tools") / "tools.py"
    tools.write_text(TOOL)
    with started("tests.server.budget_server", str(tiny_chat_checkpoint), str(tools)) as process:
        assert process.stdout is not None
        yield process.pid, process.stdout.readline().strip()


@pytest.mark.parametrize("attack", list(ATTACKS))
@retried_under_load()
async def test_a_budget_that_is_filled_again_takes_no_more_memory_and_delays_nobody(
    attack: str, server: tuple[int, str]
) -> None:
    pid, address = server
    with started("tests.server.budget_attacks", address) as attacker:
        async with connected(address) as neighbour, asyncio.timeout(2 * HANG_S):

            async def turn_s() -> float:
                began = time.monotonic()
                assert (await speak_one_turn(neighbour))["response"]["status"] == "completed"
                return time.monotonic() - began

            def fill() -> None:
                assert attacker.stdin is not None and attacker.stdout is not None
                attacker.stdin.write(f"{attack}\n")
                assert attacker.stdout.readline() == "full\n"

            await turn_s()  # the first one takes longer
            quiet_s = await turn_s()
            forget_peak(pid)
            await asyncio.to_thread(fill)
            first = peak_bytes(pid)
            forget_peak(pid)
            filling, turns_s = asyncio.create_task(asyncio.to_thread(fill)), []
            while not filling.done():
                turns_s.append(await turn_s())
            await filling
            assert peak_bytes(pid) <= first + MAX_GROWTH_BYTES
            assert max(turns_s) <= 2 * quiet_s + MAX_DELAY_S
