"""Announcements: synthesized once for all calls, and not required for a call to work."""

from __future__ import annotations

import asyncio

import pytest

from server.budgets import Budget
from server.telephony.announcements import Announcements
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


def test_announcements_that_are_kept_have_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are synthesized anew; a caller chooses the greeting."""
    monkeypatch.setattr("server.telephony.announcements.ANNOUNCEMENTS", Budget(2000, 3600.0))

    async def run() -> list[str]:
        caller = VirtualCaller()
        announcements = Announcements(caller.speech_models)
        for text in ("One.", "Two.", "One.", "Three.", "One.", "Two."):
            audio = await announcements.audio(text, "fake", 1.0, "pcmu", 8000)
            assert len(audio) == 800  # so that two have room
        return caller.voice.clauses

    assert run_on_virtual_clock(run) == ["One.", "Two.", "Three.", "Two."]


def test_an_announcement_is_given_up_once_all_calls_that_wait_for_it_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        caller = VirtualCaller()
        announcements = Announcements(caller.speech_models)
        monkeypatch.setattr(announcements, "_synthesize", lambda *_: asyncio.Event().wait())
        first, second = (
            asyncio.ensure_future(announcements.audio("Hello.", "fake", 1.0, "pcmu", 8000)) for _ in range(2)
        )
        await asyncio.sleep(0)
        (synthesis,) = asyncio.all_tasks() - {first, second, asyncio.current_task()}
        first.cancel()
        await asyncio.wait({first})
        assert not synthesis.cancelling()  # it is for the other call
        second.cancel()
        await asyncio.wait({second, synthesis})
        assert synthesis.cancelled()

    run_on_virtual_clock(run)
