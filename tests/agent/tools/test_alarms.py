"""Timers and reminders on a clock that the test sets: they are announced to their owner, now or later."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.tools.alarms import Alarms
from agent.tools.function_tool import Caller, ServerTool
from agent.tools.notes import note_tools
from agent.tools.user_data import UserData
from tests.fakes import run_on_virtual_clock
from voice.unprompted import Announcement

ANN, BOB = Caller("ann"), Caller("bob")
PETER = Caller("ann", "Remind me to call Peter in ten minutes.")
START = datetime(2026, 11, 22, 15, 0, tzinfo=UTC)


class Clock:
    """The time passes with the event loop's."""

    def __call__(self) -> datetime:
        return START + timedelta(seconds=asyncio.get_running_loop().time())


class Listener:
    """Someone who is connected; hears announcements at once unless deaf."""

    def __init__(self, *, deaf: bool = False) -> None:
        self.heard: list[str] = []
        self._deaf = deaf

    def __call__(self, announcement: Announcement) -> None:
        self.heard.append(announcement.text)
        if not self._deaf:
            announcement.on_heard()


def named(tools: list[ServerTool]) -> dict[str, ServerTool]:
    return {tool.name: tool for tool in tools}


def test_a_timer_is_announced_to_its_owner_only(tmp_path: Path) -> None:
    async def scenario() -> None:
        alarms = Alarms(UserData(tmp_path / "data.sqlite"), Clock())
        tools, ann, bob = named(alarms.tools()), Listener(), Listener()
        alarms.connect("ann", ann)
        alarms.connect("bob", bob)
        output = await tools["set_timer"].run({"duration": "1 minute"}, Caller("ann", "Set a timer for one minute."))
        assert output.speech == "Your timer for 1 minute is running."
        await asyncio.sleep(30)
        left = await tools["list_timers"].run({}, ANN)
        assert left.speech == "A timer has 30 seconds left."
        assert (await tools["list_timers"].run({}, BOB)).speech == "You have no timers or reminders."
        assert not ann.heard
        await asyncio.sleep(31)
        assert ann.heard == ["Your timer for 1 minute is up."]
        assert not bob.heard
        assert (await tools["list_timers"].run({}, ANN)).speech == "You have no timers or reminders."

    run_on_virtual_clock(scenario)


def test_a_reminder_survives_a_restart_and_comes_at_the_next_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        data = UserData(tmp_path / "data.sqlite")
        alarms = Alarms(data, Clock())
        tools = named(alarms.tools())
        disconnect = alarms.connect("ann", Listener())
        output = await tools["set_reminder"].run({"about": "call Peter", "when": "in 10 minutes"}, PETER)
        assert output.speech == "I'll remind you at 3:10 PM: call Peter."
        disconnect()
        data.close()
        await asyncio.sleep(1500)
        alarms, deaf, later = Alarms(UserData(tmp_path / "data.sqlite"), Clock()), Listener(deaf=True), Listener()
        alarms.connect("ann", deaf)()  # interrupted before anything was heard, and gone
        alarms.connect("ann", later)
        assert deaf.heard == later.heard == ["Here is your reminder: call Peter. It was due 15 minutes ago."]
        again = Listener()
        alarms.connect("ann", again)
        assert not again.heard

    run_on_virtual_clock(scenario)


def test_a_timer_is_cancelled_by_its_name_or_its_length(tmp_path: Path) -> None:
    async def scenario() -> None:
        alarms, ann = Alarms(UserData(tmp_path / "data.sqlite"), Clock()), Listener()
        tools = named(alarms.tools())
        alarms.connect("ann", ann)
        for duration, words in (("5 minutes", "for the pasta"), ("10 minutes", ""), ("20 minutes", "of the egg")):
            said = f"Set a timer {words} for {duration}."
            await tools["set_timer"].run({"duration": duration}, Caller("ann", said))
        await tools["set_reminder"].run({"about": "call Peter", "when": "in 10 minutes"}, PETER)
        for said, name, answer in (
            ("Cancel the timer.", "timer", "There are 3. Which one shall I cancel?"),
            ("Cancel the timer. The pasta timer.", "pasta timer", "It is cancelled."),
            ("Stop my ten minutes timer.", "10 minutes", "It is cancelled."),
            ("Cancel the soup timer.", "soup", "There is no such timer."),
            ("Cancel all reminders.", "all", "It is cancelled."),
        ):
            assert (await tools["cancel_timer"].run({"name": name}, Caller("ann", said))).speech == answer
        await asyncio.sleep(3600)
        assert ann.heard == ["Your timer for 20 minutes is up."]

    run_on_virtual_clock(scenario)


async def test_notes_belong_to_their_owner(tmp_path: Path) -> None:
    data = UserData(tmp_path / "data.sqlite")
    tools = named(note_tools(data, lambda: START))
    await tools["write_note"].run({"text": "Buy milk."}, ANN)
    await tools["write_note"].run({"text": "The code is 4711"}, ANN)
    assert (await tools["read_notes"].run({}, ANN)).speech == "You have 2 notes. Buy milk. The code is 4711."
    assert (
        await tools["read_notes"].run({"about": "code"}, Caller("ann", "What was the code?"))
    ).speech == "Your note says: The code is 4711."
    assert (await tools["read_notes"].run({}, BOB)).speech == "You have no notes."
    assert tools["delete_notes"].traits.consequential
    assert (await tools["delete_notes"].run({}, ANN)).speech == "Your notes are deleted."
    assert not data.notes("ann")


@pytest.mark.parametrize(
    ("duration", "said", "spoken"),
    [
        ("10 minutes", "Can you set a timer for an hour and a half?", "1 hour and 30 minutes"),
        ("1 minute", "Set a timer for one minute.", "1 minute"),
        ("10 minutes", "Five minutes.", "5 minutes"),
    ],
)
async def test_the_users_own_words_count_where_the_model_misreads_them(
    duration: str, said: str, spoken: str, tmp_path: Path
) -> None:
    tools = named(Alarms(UserData(tmp_path / "data.sqlite"), lambda: START).tools())
    output = await tools["set_timer"].run({"duration": duration}, Caller("ann", said))
    assert output.speech == f"Your timer for {spoken} is running."
    reminder = {"about": "remind me to stretch", "when": "in 2 hours"}
    output = await tools["set_reminder"].run(reminder, Caller("ann", "Remind me to stretch in ten minutes."))
    assert output.speech == "I'll remind you at 3:10 PM: stretch."
    note = Caller("ann", "Write down that the code for the garage is 4711.")
    data = UserData(tmp_path / "data.sqlite")
    output = await named(note_tools(data, lambda: START))["write_note"].run({"text": "The garage is 4711."}, note)
    assert output.speech == "I wrote down: the code for the garage is 4711."


async def test_what_the_user_did_not_say_is_asked_for(tmp_path: Path) -> None:
    tools = named(Alarms(UserData(tmp_path / "data.sqlite"), lambda: START).tools())
    output = await tools["set_timer"].run({"duration": "10 minutes"}, Caller("ann", "Set a timer."))
    assert output.speech == "For how long?"
    output = await tools["set_timer"].run({"duration": "10 minutes"}, Caller("ann", "Set a timer. Five minutes."))
    assert output.speech == "Your timer for 5 minutes is running."
    output = await tools["set_reminder"].run({"about": "it", "when": "at 9"}, Caller("ann", "Remind me to call Ann."))
    assert output.speech == "When should I remind you?"


@pytest.mark.parametrize(
    ("said", "offered"),
    [
        ("Set a timer for one minute.", {"set_timer"}),
        ("Set a timer.", {"set_timer"}),
        ("Count down 30 seconds.", {"set_timer"}),
        ("Remind me to call Peter at 5.", {"set_reminder"}),
        ("How much time is left on my timer?", {"list_timers"}),
        ("Which reminders are set?", {"list_timers"}),
        ("Stop the pasta timer.", {"cancel_timer"}),
        ("Cancel my reminder.", {"cancel_timer"}),
        ("How many minutes are in an hour?", set()),
        ("Could you remind me, how many players there are in a team?", set()),
        ("I was late for work today.", set()),
        ("I'll be there in five minutes.", set()),
        ("I need a timer for the eggs, six minutes.", {"set_timer", "list_timers"}),
    ],
)
def test_what_the_user_says_decides_which_tools_are_offered(said: str, offered: set[str], tmp_path: Path) -> None:
    tools = Alarms(UserData(tmp_path / "data.sqlite"), lambda: START).tools()
    assert {tool.name for tool in tools if re.search(tool.traits.said, said, re.IGNORECASE)} == offered


def test_a_wake_up_call_at_a_time_is_not_left_to_the_language_model(tmp_path: Path) -> None:
    async def scenario() -> None:
        tool = named(Alarms(UserData(tmp_path / "data.sqlite"), Clock()).tools())["set_reminder"]
        assert tool.certain is not None
        said = "Please wake me up at seven tomorrow morning."
        certain = tool.certain([(said, "")])
        assert certain is not None
        output = await tool.run(certain[0], Caller("ann", certain[1]))
        assert output.speech == "I'll remind you tomorrow at 7:00 AM: wake up."
        for other in ("Wake me up when September ends.", "Can you wake me up?", "Why do you wake me up at seven?"):
            assert tool.certain([(other, "")]) is None

    run_on_virtual_clock(scenario)
