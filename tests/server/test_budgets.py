"""What a client can make the server keep: every budget is filled twice, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import gc
import itertools
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest

from server.budgets import CLIENT_SECRETS, OUTBOX, STORED_RESPONSES, TOOL_LISTS, Budget, Kept, memory
from server.realtime import client_secrets
from server.realtime.events import server_event
from server.realtime.resumable_session import Outbox
from tests.real_time import HANG_S
from tests.server.live_server import connected, serving, speak_one_turn


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


def kept_filler(budget: Budget) -> Callable[[], None]:
    kept, numbers = Kept[str](budget), itertools.count()

    def fill() -> None:
        for _ in range(2 * budget.bytes // (64 << 10)):
            value = "é" * (64 << 10)
            kept.put(f"name {next(numbers)}", value, memory(value))

    return fill


def outbox_filler() -> Callable[[], None]:
    outbox = Outbox()

    def fill() -> None:
        outbox.attach()
        while not outbox.stalled.is_set():
            outbox(server_event("response.output_audio.delta", delta="x" * (64 << 10)))

    return fill


@pytest.mark.parametrize("budget", [OUTBOX, CLIENT_SECRETS, STORED_RESPONSES, TOOL_LISTS])
def test_a_budget_that_is_filled_again_takes_no_more_memory(budget: Budget) -> None:
    fill, peaks = outbox_filler() if budget is OUTBOX else kept_filler(budget), []
    tracemalloc.start()
    try:
        for _ in range(2):
            tracemalloc.reset_peak()
            fill()
            gc.collect()
            peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    assert 0.9 * budget.bytes < peaks[0] < budget.bytes + (10 << 20)
    assert peaks[1] <= peaks[0] + (10 << 20)


async def test_client_secrets_have_a_budget_and_the_turns_of_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client makes secrets until its budget is full twice, while another one speaks."""
    monkeypatch.setattr(client_secrets, "CLIENT_SECRETS", replace(CLIENT_SECRETS, bytes=1 << 20))
    body, peaks, secrets = {"session": {"type": "realtime", "instructions": "x" * 32_000}}, list[int](), list[str]()
    with serving() as address:
        async with (
            httpx.AsyncClient(base_url=f"http://{address}", timeout=HANG_S) as web,
            connected(address) as speaker,
        ):

            async def fill() -> None:
                for _ in range(40):
                    created = await web.post("/v1/realtime/client_secrets", json=body)
                    secrets.append(created.json()["value"])

            tracemalloc.start()
            try:
                for _ in range(2):
                    tracemalloc.reset_peak()
                    done, _ = await asyncio.gather(speak_one_turn(speaker), fill())
                    assert done["response"]["status"] == "completed"
                    peaks.append(tracemalloc.get_traced_memory()[1])
            finally:
                tracemalloc.stop()
        assert peaks[1] <= peaks[0] + (10 << 20)
        valid = []
        for secret in (secrets[0], secrets[-1]):
            async with connected(address, subprotocols=["realtime", f"openai-insecure-api-key.{secret}"]) as client:
                valid.append("xxx" in str(await client.recv()))
        assert valid == [False, True]
