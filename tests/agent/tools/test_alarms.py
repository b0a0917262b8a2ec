"""Timers, alarms and reminders on a clock that the test sets: they are announced to their owner, now or later."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agent.tools.alarms import Alarms
from agent.tools.function_tool import Caller
from agent.tools.protocol import Announcement
from agent.tools.user_data import MAX_ENTRIES, Alarm, UserData
from tests.fakes import InlineExecutor, run_on_virtual_clock

START = datetime(2026, 11, 22, 15, 0, tzinfo=UTC)  # a Sunday
NONE = "You have no timers, alarms or reminders."


class Listener:
    """Someone who is connected; hears announcements at once unless deaf."""

    def __init__(self, *, deaf: bool = False) -> None:
        self.heard: list[str] = []
        self._deaf = deaf

    def __call__(self, announcement: Announcement) -> None:
        self.heard.append(announcement.text)
        if not self._deaf:
            announcement.on_heard()


class Setup:
    """Alarms in a file. The time passes with the event loop's."""

    def __init__(self, file: Path) -> None:
        self.data = UserData(file, InlineExecutor())
        self.alarms = Alarms(self.data, lambda: START + timedelta(seconds=asyncio.get_running_loop().time()))
        self._tools = {tool.name: tool for tool in self.alarms.tools()}

    async def call(self, name: str, owner: str = "ann", /, **arguments: Any) -> str:
        output = await self._tools[name].run(arguments, Caller(owner))
        assert output.speech == output.text
        return output.speech

    def connect(self, owner: str = "ann", **options: Any) -> Listener:
        listener = Listener(**options)
        self.alarms.connect(owner, listener)
        return listener


@pytest.fixture
def scenario(tmp_path: Path) -> Callable[[Callable[[Setup], Coroutine[Any, Any, None]]], None]:
    """Runs a scenario on a virtual clock."""
    return lambda work: run_on_virtual_clock(lambda: work(Setup(tmp_path / "data.sqlite")))


Run = Callable[[Callable[[Setup], Coroutine[Any, Any, None]]], None]


def test_a_timer_is_announced_to_its_owner_only(scenario: Run) -> None:
    async def work(user: Setup) -> None:
        ann, bob = user.connect(), user.connect("bob")
        assert await user.call("set_timer", minutes=1) == "Your timer for 1 minute is running."
        await asyncio.sleep(30)
        assert await user.call("list_alarms") == "A timer has 30 seconds left."
        assert await user.call("list_alarms", "bob") == NONE
        assert not ann.heard
        await asyncio.sleep(31)
        assert ann.heard == ["Your timer for 1 minute is up."]
        assert not bob.heard
        assert await user.call("list_alarms") == NONE

    scenario(work)


def test_what_is_ahead_is_reported_at_once_and_when_it_changes(scenario: Run) -> None:
    async def work(user: Setup) -> None:
        reports: list[list[tuple[str, str, float]]] = []

        def report(alarms: list[Alarm], now: float) -> None:
            reports.append([(alarm.kind, alarm.text, round(alarm.due_at - now)) for alarm in alarms])

        await user.call("set_timer", minutes=5, name="rice")
        disconnect = user.alarms.connect("ann", Listener(), report)
        user.connect("bob")
        await user.call("set_timer", "bob", minutes=1)
        await user.call("set_timer", minutes=1)
        await asyncio.sleep(61)
        await user.call("cancel_alarm", name="rice")
        disconnect()
        await user.call("set_timer", minutes=2)
        assert reports == [
            [("timer", "rice", 300)], [("timer", "", 60), ("timer", "rice", 300)], [("timer", "rice", 240)], [],
        ]  # fmt: skip

    scenario(work)


def test_a_timer_has_a_length_and_may_have_a_name(scenario: Run) -> None:
    async def work(user: Setup) -> None:
        ann = user.connect()
        for arguments, answer in (
            ({"hours": 1.5, "name": "the roast timer"}, "Your roast timer for 1 hour and 30 minutes is running."),
            ({"seconds": 90, "name": "timer"}, "Your timer for 1 minute and 30 seconds is running."),
            ({}, "For how long?"),
        ):
            assert await user.call("set_timer", **arguments) == answer
        assert await user.call("list_alarms") == (
            "A timer has 1 minute and 30 seconds left. The roast timer has 1 hour and 30 minutes left."
        )
        await asyncio.sleep(3 * 3600)
        assert ann.heard == [
            "Your timer for 1 minute and 30 seconds is up.", "Your roast timer for 1 hour and 30 minutes is up.",
        ]  # fmt: skip

    scenario(work)


def test_alarms_and_reminders_say_when_they_are_due(scenario: Run) -> None:
    async def work(user: Setup) -> None:
        for name, arguments, answer in (
            ("set_alarm", {"time": "6:40"}, "Your alarm is set for 6:40 AM tomorrow."),
            ("set_alarm", {"time": "6:40 am", "repeat": "weekdays"}, "Your alarm is set for 6:40 AM on weekdays."),
            ("set_alarm", {"time": "noon", "day": "friday"}, "Your alarm is set for noon on Friday, November 27."),
            ("set_alarm", {"time": "16:30"}, "Your alarm is set for 4:30 PM."),
            ("set_reminder", {"about": "call Eve.", "minutes": 30}, "I'll remind you at 3:30 PM today: call Eve."),
            ("set_reminder", {"about": "stretch", "time": "6"}, "I'll remind you at 6:00 PM today: stretch."),
            ("set_reminder", {"about": "pay", "day": "tomorrow"}, "I'll remind you at 9:00 AM tomorrow: pay."),
            (
                "set_reminder",
                {"about": "swim", "time": "8 am", "repeat": "monday, friday"},
                "I'll remind you at 8:00 AM every Monday and Friday: swim.",
            ),
            ("set_reminder", {"about": "pay rent"}, "When should I remind you?"),
        ):
            assert await user.call(name, **arguments) == answer
        listed = await user.call("list_alarms")
        assert "At 8:00 AM every Monday and Friday: swim." in listed
        assert "An alarm is set for noon on Friday, November 27." in listed

    scenario(work)


@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("set_alarm", {"time": "2 pm", "day": "today"}, "That time has already passed."),
        ("set_alarm", {"time": "6:40", "day": "someday"}, "On which day?"),
        ("set_reminder", {"about": "swim", "day": "2 days ago"}, "At what time?"),
    ],
)
def test_a_time_that_cannot_be_is_asked_about(scenario: Run, name: str, arguments: dict[str, Any], answer: str) -> None:
    async def work(user: Setup) -> None:
        assert await user.call(name, **arguments) == answer
        assert await user.call("list_alarms") == NONE

    scenario(work)


def test_the_same_alarm_or_reminder_is_set_once_and_places_choose_among_several(scenario: Run) -> None:
    async def work(user: Setup) -> None:
        for _ in range(2):
            await user.call("set_timer", minutes=5)
        assert await user.call("set_alarm", time="9 pm", name="yoga") == "Your yoga alarm is set for 9:00 PM."
        assert await user.call("set_alarm", time="9 pm", name="Yoga") == "Your Yoga alarm is already set for 9:00 PM."
        await user.call("set_reminder", about="swim", time="8 pm")
        said = await user.call("set_reminder", about="swim.", time="8 pm")
        assert said == "Yes, I'll remind you at 8:00 PM today: swim."
        await user.call("set_alarm", time="10 pm")
        assert await user.call("cancel_alarm", name="the third alarm") == "There is no such one."
        assert await user.call("cancel_alarm", name="second alarm") == "Cancelled: the alarm at 10:00 PM today."
        assert await user.call("cancel_alarm", name="first alarm") == "Cancelled: the yoga alarm at 9:00 PM today."
        assert await user.call("cancel_alarm", name="all timers") == "All 2 are cancelled."
        assert await user.call("cancel_alarm") == "Cancelled: the reminder at 8:00 PM today: swim."

    scenario(work)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("set_alarm", {"time": "soon"}), ("set_alarm", {}), ("set_alarm", {"time": "6:40", "repeat": "hourly"}),
        ("set_timer", {"minutes": -5}), ("set_timer", {"hours": 1e9}), ("set_reminder", {"time": "6:40"}),
    ],
)  # fmt: skip
def test_what_cannot_be_set_is_an_error(scenario: Run, name: str, arguments: dict[str, Any]) -> None:
    async def work(user: Setup) -> None:
        with pytest.raises(ValueError):
            await user.call(name, **arguments)
        assert await user.call("list_alarms") == NONE

    scenario(work)


def test_a_reminder_survives_a_restart_and_comes_at_the_next_connection(tmp_path: Path) -> None:
    async def work() -> None:
        before = Setup(tmp_path / "data.sqlite")
        disconnect = before.alarms.connect("ann", Listener())
        await before.call("set_reminder", about="call Peter", minutes=10)
        disconnect()
        before.data.close()
        await asyncio.sleep(1500)
        after, deaf = Setup(tmp_path / "data.sqlite"), Listener(deaf=True)
        after.alarms.connect("ann", deaf)()  # interrupted before anything was heard, and gone
        assert deaf.heard == after.connect().heard
        assert deaf.heard == ["Here is your reminder: call Peter. It was due 15 minutes ago."]
        assert not after.connect().heard

    run_on_virtual_clock(work)


def test_an_alarm_that_repeats_is_announced_each_time_it_is_due(scenario: Run) -> None:
    async def work(user: Setup) -> None:
        ann = user.connect()
        await user.call("set_alarm", time="6:40 am", repeat="weekdays")
        await asyncio.sleep(3 * 86_400)
        assert ann.heard == ["It's time: this is your alarm."] * 3  # on Monday, Tuesday and Wednesday
        await asyncio.sleep(4 * 86_400)
        assert len(ann.heard) == 5
        assert await user.call("list_alarms") == "An alarm is set for 6:40 AM on weekdays."

    scenario(work)


def _fails(*arguments: object) -> None:
    raise sqlite3.OperationalError("the disk is full")


def test_a_reminder_that_cannot_be_postponed_is_announced_once(scenario: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(user: Setup) -> None:
        await user.call("set_reminder", about="swim", time="8 am", repeat="daily")
        monkeypatch.setattr(user.data, "postpone_alarm", _fails)
        listener = user.connect()
        await asyncio.sleep(2 * 86_400)
        assert len(listener.heard) == 1

    scenario(run)


def test_a_timer_that_cannot_be_read_for_a_moment_is_announced_soon(
    scenario: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(user: Setup) -> None:
        await user.call("set_timer", minutes=1)
        with monkeypatch.context() as context:
            context.setattr(user.data, "alarms", _fails)
            listener = user.connect()
            await asyncio.sleep(5)
        await asyncio.sleep(70)
        assert len(listener.heard) == 1

    scenario(run)


def test_a_repeated_alarm_that_nobody_heard_is_announced_once(scenario: Run) -> None:
    async def work(user: Setup) -> None:
        await user.call("set_reminder", about="swim", time="8 am", repeat="daily")
        await asyncio.sleep(3 * 86_400)
        ann = user.connect()
        assert ann.heard == ["Here is your reminder: swim. It was due 2 days and 7 hours ago."]
        await asyncio.sleep(86_400)
        assert ann.heard[1:] == ["Here is your reminder: swim."]

    scenario(work)


def test_they_are_cancelled_by_name_kind_length_or_time(scenario: Run) -> None:
    async def work(user: Setup) -> None:
        ann = user.connect()
        for minutes, name in ((5, "pasta"), (10, ""), (20, "egg")):
            await user.call("set_timer", minutes=minutes, name=name)
        await user.call("set_alarm", time="6:40 am")
        await user.call("set_alarm", time="7 pm")
        await user.call("set_reminder", about="call Peter", minutes=10)
        for name, answer in (
            (
                "timer",
                "There are 3: the pasta timer for 5 minutes, the timer for 10 minutes and the egg timer for 20 "
                "minutes. Which one shall I cancel?",
            ),
            ("the pasta timer", "Cancelled: the pasta timer for 5 minutes."),
            ("the ten minutes timer", "Cancelled: the timer for 10 minutes."),
            ("soup", "There is no such one."),
            (
                "alarm",
                "There are 2: the alarm at 7:00 PM today and the alarm at 6:40 AM tomorrow. Which one shall I cancel?",
            ),
            ("6:40", "Cancelled: the alarm at 6:40 AM tomorrow."),
            ("alarm at seven", "Cancelled: the alarm at 7:00 PM today."),
            ("reminder to call Peter", "Cancelled: the reminder at 3:10 PM today: call Peter."),
            ("", "Cancelled: the egg timer for 20 minutes."),
            ("", NONE),
        ):
            assert (name, await user.call("cancel_alarm", name=name)) == (name, answer)
        for minutes in (5, 10):
            await user.call("set_timer", minutes=minutes)
        await user.call("set_alarm", time="6:40 am")
        assert await user.call("cancel_alarm", name="the 7 am alarm tomorrow") == "There is no such one."
        assert await user.call("cancel_alarm", name="the last timer") == "Cancelled: the timer for 10 minutes."
        await user.call("set_timer", minutes=10)
        assert await user.call("cancel_alarm", name="all timers") == "All 2 are cancelled."
        await user.call("set_alarm", time="9 pm", name="yoga")
        await user.call("set_alarm", time="6:40 am", day="friday")
        assert await user.call("cancel_alarm", name="yoga alarm") == "Cancelled: the yoga alarm at 9:00 PM today."
        assert await user.call("cancel_alarm", name="last") == "Cancelled: the alarm at 6:40 AM on Friday, November 27."
        await asyncio.sleep(3600)
        assert not ann.heard
        assert await user.call("cancel_alarm", "bob", name="all") == NONE
        assert await user.call("cancel_alarm", name="everything") == "Cancelled: the alarm at 6:40 AM tomorrow."

    scenario(work)


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("tea timer", ["steak", "10 s", "30 min", "90 min", "2 min", "150 s", "vacation", "dentist"]),
        ("steaks", ["tea", "10 s", "30 min", "90 min", "2 min", "150 s", "vacation", "dentist"]),
        ("cat", None),
        ("the 1 hour 30 minute timer", ["tea", "steak", "10 s", "30 min", "2 min", "150 s", "vacation", "dentist"]),
        ("hour and a half timer", None),
        ("an hour and a half timer", ["tea", "steak", "10 s", "30 min", "2 min", "150 s", "vacation", "dentist"]),
        ("2 minute 30 second timer", ["tea", "steak", "10 s", "30 min", "90 min", "2 min", "vacation", "dentist"]),
        ("two-minute timer", ["tea", "steak", "10 s", "30 min", "90 min", "150 s", "vacation", "dentist"]),
        ("10 minute timer", None),
        ("december 5 reminder", ["tea", "steak", "10 s", "30 min", "90 min", "2 min", "150 s", "vacation"]),
        ("the reminder of the fifth of december", [
            "tea", "steak", "10 s", "30 min", "90 min", "2 min", "150 s", "vacation"]),
        ("december 6 reminder", None),
        ("reminder on december 5 at 9 am", [
            "tea", "steak", "10 s", "30 min", "90 min", "2 min", "150 s", "vacation"]),
        ("reminder on december 5 at 7", None),
    ],
)  # fmt: skip
def test_the_one_is_cancelled_that_was_named(scenario: Run, name: str, left: list[str] | None) -> None:
    async def work(user: Setup) -> None:
        await user.call("set_timer", minutes=7, name="tea")
        await user.call("set_timer", minutes=8, name="steak")
        lengths = {"10 s": 10, "30 min": 1800, "90 min": 5400, "2 min": 120, "150 s": 150}
        for seconds in lengths.values():
            await user.call("set_timer", seconds=seconds)
        await user.call("set_reminder", about="book the vacation", time="5 pm")
        await user.call("set_reminder", about="dentist", day="december 5")
        before = {alarm.id for alarm in user.data.alarms("ann")}
        answer = await user.call("cancel_alarm", name=name)
        after = sorted(user.data.alarms("ann"), key=lambda alarm: alarm.id)
        if left is None:
            assert answer == "There is no such one." and {alarm.id for alarm in after} == before
            return
        named = {round(alarm.due_at - alarm.set_at): alarm.text.split()[-1:] for alarm in after}
        spoken = {seconds: length for length, seconds in lengths.items()}
        assert [(text or [spoken[seconds]])[0] for seconds, text in named.items()] == left

    scenario(work)


def test_only_one_day_of_an_alarm_that_repeats_is_skipped(scenario: Run) -> None:
    async def work(user: Setup) -> None:
        ann = user.connect()
        await user.call("set_alarm", time="6:40 am", repeat="weekdays")
        await user.call("set_alarm", time="7 am", repeat="weekdays", name="yoga")
        for name, answer in (
            ("tomorrow's 6:40 alarm", "I'll skip tomorrow's. The next one is on Tuesday, November 24."),
            ("tomorrow's 6:40 alarm", "There is no such one."),
            ("all alarms tomorrow", "I'll skip tomorrow's. The next one is on Tuesday, November 24."),
        ):
            assert (name, await user.call("cancel_alarm", name=name)) == (name, answer)
        await asyncio.sleep(2 * 86_400)
        assert ann.heard == ["It's time: this is your alarm.", "It's time: this is your yoga alarm."]
        assert await user.call("cancel_alarm", name="all alarms for tomorrow") == "All 2 are cancelled for tomorrow."
        assert len(user.data.alarms("ann")) == 2
        answer = await user.call("cancel_alarm", name="yoga alarm")
        assert answer == "Cancelled: the yoga alarm at 7:00 AM on weekdays."
        await user.call("set_reminder", about="swim", time="8 am", repeat="weekends")
        assert (
            await user.call("cancel_alarm", name="weekend reminder")
            == "Cancelled: the reminder at 8:00 AM on weekends: swim."
        )
        assert (
            await user.call("cancel_alarm", name="all weekday alarms") == "Cancelled: the alarm at 6:40 AM on weekdays."
        )
        assert await user.call("list_alarms") == NONE

    scenario(work)


def test_the_number_of_one_owners_entries_has_a_limit(scenario: Run) -> None:
    async def work(user: Setup) -> None:
        for _ in range(MAX_ENTRIES):
            await user.call("set_timer", minutes=1)
        with pytest.raises(ValueError, match="no more fit"):
            await user.call("set_timer", minutes=1)
        await user.call("set_timer", "bob", minutes=1)

    scenario(work)


async def test_a_file_that_another_process_writes_does_not_hold_up_the_event_loop(tmp_path: Path) -> None:
    data = UserData(tmp_path / "data.sqlite")
    alarms = Alarms(data, lambda: START)
    (set_timer,) = [tool for tool in alarms.tools() if tool.name == "set_timer"]
    with closing(sqlite3.connect(tmp_path / "data.sqlite")) as other:
        other.execute("begin immediate")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        setting = asyncio.create_task(set_timer.run({"minutes": 1}, Caller("ann")))
        alarms.forget("bob")
        await asyncio.sleep(0.1)
        alarms.connect("ann", Listener())()
        assert loop.time() < begun + 2 and not setting.done()
        other.rollback()
    assert (await setting).text == "Your timer for 1 minute is running."
    assert [alarm.kind for alarm in data.alarms("ann")] == ["timer"]
    data.close()


def test_a_length_of_time_does_not_follow_clocks_that_are_changed(tmp_path: Path) -> None:
    start = datetime(2026, 3, 28, 22, 0, tzinfo=ZoneInfo("Europe/Berlin"))

    async def scenario() -> None:
        setup = Setup(tmp_path / "data.sqlite")
        setup.alarms = Alarms(setup.data, lambda: start)
        setup._tools = {tool.name: tool for tool in setup.alarms.tools()}
        assert await setup.call("set_timer", hours=8) == "Your timer for 8 hours is running."
        assert await setup.call("list_alarms") == "A timer has 8 hours left."
        assert "7:00 AM tomorrow" in await setup.call("set_reminder", about="swim", hours=8)
        assert [alarm.due_at - start.timestamp() for alarm in setup.data.alarms("ann")] == [28_800, 28_800]

    run_on_virtual_clock(scenario)
