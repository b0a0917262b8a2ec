"""Faults over real sockets, next to a witness whose every turn is answered (`lab/benchmarks/faults.py`)."""

from __future__ import annotations

import asyncio

from lab.benchmarks.faults import FAULTS, MAX_RECOVERY_S, cut, flood, garbage, half_open, inject, malformed, site
from tests.real_time import retried_under_load, wait_until
from tests.server.live_server import connected, receive, speak_one_turn


@retried_under_load(attempts=2)
async def test_clients_are_answered_within_five_seconds_after_every_fault() -> None:
    recoveries = await inject()
    assert [recovery.fault for recovery in recoveries] == list(FAULTS)
    assert max(recovery.seconds for recovery in recoveries) < MAX_RECOVERY_S, recoveries


@retried_under_load(attempts=2)
async def test_a_witness_is_answered_while_others_misbehave_at_the_same_time() -> None:
    with site() as place:
        async with connected(place.address) as witness:
            await receive(witness, "session.created")
            others = asyncio.gather(*(kind(place) for kind in (cut, half_open, garbage, malformed, flood)))
            statuses = [(await speak_one_turn(witness))["response"]["status"] for _ in range(3)]
            await others
            statuses.append((await speak_one_turn(witness))["response"]["status"])
            assert statuses == ["completed"] * 4
            await wait_until(lambda: len(place.admission.slots) == 1)  # nobody else holds a slot
        await wait_until(lambda: not place.admission.slots)
