"""Announcements: synthesized once for all calls, and not required for a call to work."""

from __future__ import annotations

import pytest

from server.telephony.settings import CallSettings
from tests.fakes import run_on_virtual_clock
from tests.server.telephony.virtual_call import VirtualCaller, run_call


def test_a_greeting_is_heard_kept_in_history_and_synthesized_once_for_all_calls() -> None:
    async def script(caller: VirtualCaller) -> None:
        await caller.listen(1.5)
        assert caller.history == [("assistant", "Hello there, friend.")]

    async def run_two_calls() -> tuple[VirtualCaller, VirtualCaller]:
        first = VirtualCaller(settings=CallSettings(greeting="Hello there, friend."))
        await first.run(script)
        second = VirtualCaller(settings=CallSettings(greeting="Hello there, friend."))
        second.announcements = first.announcements
        await second.run(script)
        return first, second

    first, second = run_on_virtual_clock(run_two_calls)
    assert [first.heard_s, second.heard_s] == pytest.approx([0.3, 0.3], abs=0.02)
    assert first.voice.clauses == ["Hello there,", "friend."]
    assert second.voice.clauses == []


def test_a_failing_voice_costs_the_greeting_but_not_the_call() -> None:
    async def script(caller: VirtualCaller) -> None:
        caller.voice.failing = True
        await caller.listen(0.5)
        caller.voice.failing = False
        await caller.ask()

    caller = run_call(script, VirtualCaller(settings=CallSettings(greeting="Hello.")))
    assert caller.history[-1] == ("assistant", "The capital of France is Paris.")
