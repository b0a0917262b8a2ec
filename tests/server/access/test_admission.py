"""Slots, limits of keys, draining."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from server.access.adaptive_limit import AdaptiveLimit
from server.access.admission import Admission, Kind, Refused, wait_silently
from server.access.keys import ApiKey, ApiKeys, KeyLimits, KeyStore
from server.access.usage import NO_KEY, Usage
from tests.fakes import run_on_virtual_clock


def refusal(admission: Admission, key: ApiKey | None = None, kind: Kind = "realtime") -> Refused:
    with pytest.raises(Refused) as refused:
        admission.reserve(kind, key)
    return refused.value


def test_there_are_never_more_conversations_than_slots() -> None:
    async def run() -> None:
        admission = Admission(2)

        async def caller() -> bool:
            try:
                slot = admission.reserve("realtime")
            except Refused:
                return False
            await asyncio.sleep(1)
            assert len(admission.slots) <= 2
            slot.release()
            slot.release()  # twice is once
            return True

        assert sum(await asyncio.gather(*(caller() for _ in range(20)))) == 2
        assert admission.refusals["too_many_conversations"] == 18
        assert not admission.slots

    run_on_virtual_clock(run)


def test_a_key_has_its_own_limit_of_conversations() -> None:
    admission, alice, bob = Admission(4), ApiKey("alice", KeyLimits(conversations=1)), ApiKey("bob")
    slot = admission.reserve("realtime", alice)
    assert refusal(admission, alice).code == "key_conversation_limit"
    admission.reserve("phone", bob)
    slot.release()
    admission.reserve("phone", alice)


@pytest.mark.parametrize(
    ("limits", "used"),
    [(KeyLimits(minutes_per_day=1), Usage(seconds=60)), (KeyLimits(tokens_per_day=100), Usage(input_tokens=100))],
)
def test_a_key_that_has_used_its_day_is_refused_and_its_conversations_end(limits: KeyLimits, used: Usage) -> None:
    admission, key = Admission(), ApiKey("alice", limits)
    slot, other = admission.reserve("realtime", key), admission.reserve("realtime", ApiKey("bob"))
    admission.usage.add("alice", used)
    refused = refusal(admission, key)
    assert (refused.code, refused.retry_after_s) == ("quota_exceeded", 3600)
    admission.check_slots()
    assert slot.dismissal is not None and slot.dismissal.code == "quota_exceeded" and slot.dismissal.after_turn
    assert other.dismissal is None


def test_the_conversations_of_a_revoked_key_end_at_once(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.sqlite")
    keys = ApiKeys(store=store)
    key = keys.find([store.add("alice")])
    admission = Admission(keys=keys)
    slot = admission.reserve("realtime", key)
    admission.check_slots()
    assert slot.dismissal is None
    store.revoke("alice")
    admission.check_slots()
    assert slot.dismissal is not None and slot.dismissal.code == "key_revoked" and not slot.dismissal.after_turn


def test_the_time_of_conversations_is_counted_for_their_key() -> None:
    now = [0.0]
    admission = Admission(clock=lambda: now[0])
    slot = admission.reserve("realtime", ApiKey("alice"))
    admission.reserve("phone")
    now[0] = 5.0
    admission.check_slots()
    now[0] = 9.0
    slot.release()
    assert admission.usage.today("alice").seconds == 9.0
    assert admission.usage.today("alice").conversations == 1
    assert admission.usage.today(NO_KEY).seconds == 5.0


def test_draining_admits_nobody_and_waits_for_the_others() -> None:
    async def run() -> None:
        admission = Admission(4)
        slot = admission.reserve("realtime")
        admission.drain()
        assert not admission.ready
        assert refusal(admission).code == "server_shutting_down"
        assert slot.dismissal is None
        admission.drain(False)
        slow, now = admission.reserve("phone"), asyncio.get_running_loop().time
        drained = asyncio.create_task(admission.dismiss_all(20))
        await slot.dismissed.wait()
        asyncio.get_running_loop().call_later(3, slot.release)
        asyncio.get_running_loop().call_later(7, slow.release)
        assert await drained
        assert now() == pytest.approx(7)
        readmitted = Admission()
        readmitted.reserve("realtime")
        assert not await readmitted.dismiss_all(2)  # one that does not end

    run_on_virtual_clock(run)


def test_a_caller_waits_for_a_slot_and_is_told_so() -> None:
    async def run() -> None:
        admission, now, told = Admission(1), asyncio.get_running_loop().time, list[float]()

        async def tell() -> None:
            told.append(now())

        first = await admission.admit("realtime")
        asyncio.get_running_loop().call_later(3, first.release)
        second = await admission.admit("realtime", on_wait=tell)
        assert (now(), told) == (3, [0])
        assert admission.slots == {second}
        with pytest.raises(Refused, match=r"as many conversations as it may \(1\)"):
            await admission.admit("realtime")
        assert now() == 11
        with pytest.raises(Refused):
            await admission.admit("phone")
        assert now() == 14  # a caller hears nothing

    run_on_virtual_clock(run)


def test_those_who_wait_are_served_in_order_and_one_more_than_the_queue_holds_is_refused() -> None:
    async def run() -> None:
        admission, order = Admission(1), list[int]()
        first = await admission.admit("realtime")

        async def caller(number: int) -> None:
            slot = await admission.admit("realtime")
            order.append(number)
            slot.release()

        callers = [asyncio.create_task(caller(number)) for number in range(4)]
        await asyncio.sleep(1)
        with pytest.raises(Refused):
            await admission.admit("realtime")
        assert asyncio.get_running_loop().time() == 1
        callers[1].cancel()
        await asyncio.sleep(0)
        first.release()
        await asyncio.gather(*callers, return_exceptions=True)
        assert order == [0, 2, 3]
        assert not admission.slots

    run_on_virtual_clock(run)


def test_draining_refuses_those_who_wait() -> None:
    async def run() -> None:
        admission = Admission(1)
        await admission.admit("realtime")
        waiting = asyncio.create_task(admission.admit("realtime"))
        await asyncio.sleep(1)
        admission.drain()
        with pytest.raises(Refused, match="shutting down"):
            await waiting

    run_on_virtual_clock(run)


def test_a_parked_conversation_gives_way_and_goes_on_before_all_others() -> None:
    async def run() -> None:
        admission = Admission(1)
        parked = await admission.admit("realtime")
        parked.park()
        other = await admission.admit("realtime")  # at once
        waiting = asyncio.create_task(admission.admit("realtime"))
        await asyncio.sleep(1)
        returning = asyncio.create_task(parked.unpark(wait_silently))
        await asyncio.sleep(1)
        assert parked.parked and not returning.done()
        other.release()
        await returning
        assert not parked.parked and not waiting.done()
        parked.release()
        assert await waiting in admission.slots

    run_on_virtual_clock(run)


def test_a_limit_that_rises_lets_somebody_in() -> None:
    async def run() -> None:
        admission = Admission(1, limit=AdaptiveLimit(1, 1, 1000))
        await admission.admit("realtime")
        waiting = asyncio.create_task(admission.admit("realtime"))
        await asyncio.sleep(1)
        for _ in range(20):
            admission.record_turn(500)
        await waiting
        assert len(admission.slots) == admission.limit == 2
        admission.restart(1)
        assert (admission.limit, admission.capacity) == (1, 1)
        assert len(admission.slots) == 2  # who is in stays

    run_on_virtual_clock(run)


def test_a_limit_that_was_given_stays_after_another_trial() -> None:
    admission = Admission(8)
    admission.restart(2)
    assert (admission.limit, admission.capacity) == (8, 8)


def test_a_client_that_gives_up_coming_back_leaves_the_slot_to_others() -> None:
    async def run() -> None:
        admission = Admission(1)
        parked = await admission.admit("realtime")
        parked.park()
        other = await admission.admit("realtime")
        returning = asyncio.create_task(parked.unpark(wait_silently))
        await asyncio.sleep(1)
        other.release()  # the slot is the returning one's …
        returning.cancel()  # … which is gone in the same moment
        await asyncio.gather(returning, return_exceptions=True)
        assert parked.parked and not admission.full

    run_on_virtual_clock(run)
