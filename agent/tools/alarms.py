"""The built-in tools for timers, alarms and reminders, and their announcement when they are due."""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from functools import partial
from typing import Annotated

from pydantic import Field

from agent.program.evaluator import read_clock
from agent.program.grammar import CLOCK_PATTERN
from agent.program.speech import spoken_date, spoken_duration, spoken_time
from agent.program.values import BadProgram
from agent.tools.function_tool import Caller, ServerTool, Spoken, function_tool, tool
from agent.tools.protocol import Announcement
from agent.tools.recurrence import REPEAT_PATTERN, first_due, next_due, spoken_repeat, stored_repeat
from agent.tools.user_data import Alarm, UserData
from agent.words.language import language

_log = logging.getLogger("rejoinder.agent")

_ENGLISH = language("en")

_LATE_S = 60.0
"""An announcement that comes later than this says how late it is."""

_RETRY_S = 10.0
"""After the file could not be read."""

_RECHECK_S = 3600.0
"""The clock of the machine may be set, so nothing is waited for longer at once."""

_ALL = frozenset("all every everything both timers alarms reminders".split())
"""What means more than one of them."""

_KINDS = {"timer": "timer", "timers": "timer", "alarm": "alarm", "alarms": "alarm", "reminder": "reminder",
          "reminders": "reminder"}  # fmt: skip
_PLACES = {"first": 0, "1st": 0, "earlier": 0, "earliest": 0, "next": 0, "second": 1, "2nd": 1, "third": 2, "3rd": 2,
           "later": -1}  # fmt: skip
"""Which one of several is meant, by when they are due."""

_MAX_NAMED = 3
"""Of several that may be meant, so many are named."""

_NO_NAME = _ALL | _KINDS.keys() | frozenset("the my for about of a an to at o'clock minutes minute hours hour".split())

_MONTH = f"(?:{'|'.join(f'{month}|{month[:3]}' for month in _ENGLISH.MONTHS)})"
_DAY = rf"(?:\d{{1,2}}(?:st|nd|rd|th)?|{'|'.join(_ENGLISH.ORDINALS)})\b(?!:| ?[ap]m)"

ClockText = Annotated[str, Field(pattern=f"^({CLOCK_PATTERN})$")]
Repeat = Annotated[str, Field(pattern=f"^({REPEAT_PATTERN})$")]
Amount = Annotated[float, Field(ge=0, le=10_000)]

Announce = Callable[[Announcement], None]
"""Says a text to an owner."""

Report = Callable[[list[Alarm], float], None]
"""Shows an owner's alarms that are not due yet, the next one first. The other argument is the time now."""


class Alarms:
    """The timers, alarms and reminders of all owners. Those that are due are announced to their owner if connected,
    otherwise when they connect next.

    Args:
        now: the time here, with its zone.
    """

    def __init__(self, data: UserData, now: Callable[[], datetime]) -> None:
        self._data, self._now = data, now
        self._connected: dict[str, list[_Announcer]] = {}

    def connect(self, owner: str, announce: Announce, report: Report | None = None) -> Callable[[], None]:
        """An owner is connected. Their alarms are reported now, and when they change. Returns what to call when they no
        longer are."""
        announcer = _Announcer(self._data, owner, announce, report, self._now)
        self._connected.setdefault(owner, []).append(announcer)

        def disconnect() -> None:
            announcer.close()
            self._connected[owner].remove(announcer)
            if not self._connected[owner]:
                del self._connected[owner]

        return disconnect

    def texts(self, owner: str) -> list[str]:
        """An owner's notes, and what their alarms are for."""
        return [*self._data.notes(owner), *(alarm.text for alarm in self._data.alarms(owner))]

    def pronunciations(self, owner: str) -> dict[str, str]:
        """How an owner wants words to be said."""
        return self._data.pronunciations(owner)

    def add_pronunciations(self, owner: str, said: Mapping[str, str]) -> None:
        """Keep how an owner wants words to be said."""
        self._data.in_background(self._data.add_pronunciations, owner, said)

    def forget(self, owner: str) -> None:
        """Forget all that is kept for an owner."""
        self._data.in_background(self._data.forget, owner)

    def _changed(self, owner: str) -> None:
        for announcer in self._connected.get(owner, ()):
            announcer.reschedule()

    def tools(self) -> list[ServerTool]:
        """The tools."""

        @tool(in_programs="called")
        async def set_timer(
            caller: Caller, hours: Amount = 0, minutes: Amount = 0, seconds: Amount = 0, name: str = ""
        ) -> Spoken:
            """Start a countdown timer."""
            length = timedelta(hours=hours, minutes=minutes, seconds=seconds)
            if not length:
                return Spoken("For how long?")
            start = self._now().timestamp()
            await self._add(caller, "timer", _plain_name(name), start + length.total_seconds())
            what = _named("timer", _plain_name(name))
            return Spoken(f"Your {what} for {spoken_duration(length)} is running.")

        @tool(in_programs="called")
        async def set_alarm(
            time: ClockText, caller: Caller, day: str = "", repeat: Repeat = "", name: str = ""
        ) -> Spoken:
            """Set an alarm, such as one to wake the user."""
            name = _plain_name(name)
            try:
                moment = first_due(time, day, repeat, self._now(), morning=True)
            except ValueError as error:
                return _asked(error)
            is_new = await self._add(caller, "alarm", name, moment.timestamp(), stored_repeat(repeat, moment))
            already = "" if is_new else "already "
            return Spoken(f"Your {_named('alarm', name)} is {already}set for {_spoken(moment, repeat, self._now())}.")

        @tool(in_programs="called")
        async def set_reminder(
            about: str, caller: Caller, time: ClockText = "", day: str = "", repeat: Repeat = "", hours: Amount = 0,
            minutes: Amount = 0,
        ) -> Spoken:  # fmt: skip
            """Remind the user of something, at a time or after some time."""
            now, ahead = self._now(), timedelta(hours=hours, minutes=minutes)
            if not (ahead or time or day or repeat):
                return Spoken("When should I remind you?")
            after = datetime.fromtimestamp(now.timestamp() + ahead.total_seconds(), now.tzinfo)
            try:
                moment = after if ahead else first_due(time, day, repeat, now, morning=False)
            except ValueError as error:
                return _asked(error)
            about = about.strip().rstrip(".")
            is_new = await self._add(caller, "reminder", about, moment.timestamp(), stored_repeat(repeat, moment))
            sure = "" if is_new else "Yes, "
            return Spoken(f"{sure}I'll remind you {_spoken(moment, repeat, now, 'at ')}: {about}.")

        @tool(read_only=True, in_programs="called")
        async def list_alarms(caller: Caller) -> Spoken:
            """Tell which timers, alarms and reminders are set, and how much time is left."""
            alarms, now = self._data.alarms(caller.owner), self._now()
            if not alarms:
                return Spoken("You have no timers, alarms or reminders.")
            return Spoken(" ".join(_describe(alarm, now) for alarm in alarms[:8]))

        @tool(in_programs="called")
        async def cancel_alarm(caller: Caller, name: str = "") -> Spoken:
            """Cancel timers, alarms or reminders: the one of this name, kind or time, the last one, or all."""
            alarms = self._data.alarms(caller.owner)
            chosen, words = _chosen(alarms, name, self._now()), set(name.lower().split())
            if not chosen:
                return Spoken("There is no such one." if alarms else "You have no timers, alarms or reminders.")
            if len(chosen) > 1 and not words & _ALL:
                found = [_which(alarm, self._now()) for alarm in chosen[:_MAX_NAMED]]
                last = "others" if len(chosen) > _MAX_NAMED else found.pop()
                return Spoken(f"There are {len(chosen)}: {', '.join(found)} and {last}. Which one shall I cancel?")
            skipped = re.search(r"\b(today|tonight|tomorrow)\b", name.lower())
            answers = [await self._cancel(caller.owner, alarm, skipped[0] if skipped else "") for alarm in chosen]
            self._changed(caller.owner)
            which = f" for {skipped[0]}" if skipped else ""
            return Spoken(answers[0] if len(chosen) == 1 else f"All {len(chosen)} are cancelled{which}.")

        return [function_tool(each) for each in (set_timer, set_alarm, set_reminder, list_alarms, cancel_alarm)]

    async def _add(self, caller: Caller, kind: str, text: str, due_at: float, repeat: str = "") -> bool:
        """Add an alarm. Returns whether there was none that is the same: two timers may be."""
        same = (kind, text.lower(), round(due_at), repeat)
        others = [] if kind == "timer" else self._data.alarms(caller.owner)
        if any((one.kind, one.text.lower(), round(one.due_at), one.repeat) == same for one in others):
            return False
        row = (caller.owner, kind, text, self._now().timestamp(), due_at, repeat)
        await asyncio.wrap_future(self._data.in_background(self._data.add_alarm, *row))
        self._changed(caller.owner)
        return True

    async def _cancel(self, owner: str, alarm: Alarm, day: str) -> str:
        """Cancel an alarm, or one that repeats for one day only, if that is given. Returns what is said of it."""
        now = self._now()
        due = datetime.fromtimestamp(alarm.due_at, now.tzinfo)
        is_due = bool(day) and due.date() == now.date() + timedelta(days=day == "tomorrow")
        following = next_due(due, alarm.repeat, max(due, now)) if is_due else None
        if following is not None:
            write = self._data.in_background(self._data.postpone_alarm, owner, alarm.id, following.timestamp())
            await asyncio.wrap_future(write)
            return f"I'll skip {day}'s. The next one is on {spoken_date(following)}."
        await asyncio.wrap_future(self._data.in_background(self._data.remove_alarm, owner, alarm.id))
        return f"Cancelled: {_which(alarm, now)}."


class _Announcer:
    """Announces what is due to one connected owner."""

    def __init__(
        self, data: UserData, owner: str, announce: Announce, report: Report | None, now: Callable[[], datetime]
    ) -> None:
        self._data, self._owner, self._announce, self._report, self._now = data, owner, announce, report, now
        self._announced: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.reschedule()

    def reschedule(self) -> None:
        """Announce what is due, and come back for the next."""
        if self._closed:
            return
        self._stop_timer()
        now = self._now().timestamp()
        try:
            alarms = self._data.alarms(self._owner)
        except sqlite3.Error as error:
            _log.error("timers cannot be read: %s", error)
            self._timer = asyncio.get_running_loop().call_later(_RETRY_S, self.reschedule)
            return
        for alarm in alarms:
            if alarm.due_at <= now and alarm.id not in self._announced:
                self._announced.add(alarm.id)
                self._announce(Announcement(_announcement(alarm, now), partial(self._heard, alarm)))
        ahead = [alarm for alarm in alarms if alarm.due_at > now]
        if ahead:
            wait_s = min(ahead[0].due_at - now, _RECHECK_S)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self.reschedule)
        if self._report is not None:
            self._report(ahead, now)

    def _heard(self, alarm: Alarm) -> None:
        """The user knows that it was due: it is forgotten, or due again."""
        now = self._now()
        due = next_due(datetime.fromtimestamp(alarm.due_at, now.tzinfo), alarm.repeat, now)
        if due is None:
            self._data.in_background(self._data.remove_alarm, self._owner, alarm.id)
            return

        def postponed(written: asyncio.Future[None]) -> None:
            if written.cancelled() or written.exception() is not None:
                return  # it is still due, and would be announced again and again
            self._announced.discard(alarm.id)
            self.reschedule()

        written = self._data.in_background(self._data.postpone_alarm, self._owner, alarm.id, due.timestamp())
        asyncio.wrap_future(written).add_done_callback(postponed)

    def close(self) -> None:
        """Announce nothing more."""
        self._closed = True
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _announcement(alarm: Alarm, now: float) -> str:
    late_s = now - alarm.due_at
    ago = f" It was due {spoken_duration(timedelta(seconds=late_s))} ago." if late_s > _LATE_S else ""
    if alarm.kind == "reminder":
        return f"Here is your reminder: {alarm.text}.{ago}"
    if alarm.kind == "alarm":
        return f"It's time: this is your {_named('alarm', alarm.text)}.{ago}"
    length = spoken_duration(timedelta(seconds=alarm.due_at - alarm.set_at))
    return f"Your {_named('timer', alarm.text)} for {length} is up.{ago}"


def _describe(alarm: Alarm, now: datetime) -> str:
    due = datetime.fromtimestamp(alarm.due_at, now.tzinfo)
    when = f"{spoken_time(due)} {spoken_repeat(alarm.repeat) or f'on {spoken_date(due)}'}"
    if alarm.kind == "reminder":
        return f"At {when}: {alarm.text}."
    if alarm.kind == "alarm":
        return f"The {alarm.text} alarm is set for {when}." if alarm.text else f"An alarm is set for {when}."
    left_s = alarm.due_at - now.timestamp()
    which = f"The {alarm.text} timer" if alarm.text else "A timer"
    if left_s <= 0:
        return f"{which} is up."
    return f"{which} has {spoken_duration(timedelta(seconds=max(1, left_s)))} left."


def _named(kind: str, name: str) -> str:
    """A timer or an alarm with its name, if it has one: "pasta timer"."""
    return f"{name} {kind}" if name else kind


def _plain_name(name: str) -> str:
    """The name of a timer or an alarm: "pasta" for "the pasta timer"."""
    return " ".join(word for word in name.strip().split() if word.lower() not in _NO_NAME)


def _chosen(alarms: list[Alarm], name: str, now: datetime) -> list[Alarm]:
    """Those that a name means: by their kind, the length of a timer, the time that they are due at, or their text."""
    words = name.lower().split()
    kinds = {_KINDS[word] for word in words if word in _KINDS}
    candidates = [alarm for alarm in alarms if not kinds or alarm.kind in kinds]
    rest = _plain_name(name.lower())
    place = rest.removesuffix(" one")
    if place == "last":
        return candidates and [max(candidates, key=lambda alarm: alarm.id)]
    if place in _PLACES:  # they are in the order in which they are due
        return candidates[_PLACES[place] :][:1]
    if not rest:
        return candidates
    if named := [alarm for alarm in candidates if _stems(rest) in _stems(alarm.text.lower())]:
        return named
    text = _ENGLISH.in_digits(name.lower())
    return [alarm for alarm in candidates if _is_at(alarm, text, now)]


def _which(alarm: Alarm, now: datetime) -> str:
    """An alarm as it is told from others: "the pasta timer for 10 minutes", "the alarm at 7 AM tomorrow"."""
    due = datetime.fromtimestamp(alarm.due_at, now.tzinfo)
    if alarm.kind == "timer":
        length = spoken_duration(timedelta(seconds=alarm.due_at - alarm.set_at))
        return f"the {_named('timer', alarm.text)} for {length}"
    when = _spoken(due, alarm.repeat, now, "at ")
    return (
        f"the reminder {when}: {alarm.text}"
        if alarm.kind == "reminder"
        else f"the {_named('alarm', alarm.text)} {when}"
    )


def _spoken(moment: datetime, repeat: str, now: datetime, at: str = "") -> str:
    """When an alarm is due: "6:40 AM tomorrow", "6:40 AM on weekdays"."""
    ahead, when = (moment.date() - now.date()).days, spoken_repeat(repeat)
    day = when or {0: "today" if at else "", 1: "tomorrow"}.get(ahead, f"on {spoken_date(moment)}")
    return f"{at}{spoken_time(moment)}{f' {day}' if day else ''}"


def _asked(problem: ValueError) -> Spoken:
    """What is said if a time cannot be understood, or is over; the user may say another one."""
    text = str(problem)
    if isinstance(problem, BadProgram):
        return Spoken("At what time?")
    return Spoken(text if text.endswith(("?", ".")) else "On which day?")


def _stems(text: str) -> str:
    """The words of a text without the endings in which names differ: "eggs" is " egg "."""
    return f" {' '.join(word.strip('.,!?').removesuffix('s') for word in _plain_name(text).split())} "


def _is_at(alarm: Alarm, text: str, now: datetime) -> bool:
    """Whether a text names the time or the day at which an alarm is due, or its length."""
    length = alarm.due_at - alarm.set_at
    if parts := re.findall(r"(?<![\w.])(an?|\d+(?:\.\d+)?)[ -](hour|minute|second)", text):
        seconds = {"hour": 3600, "minute": 60, "second": 1}
        return abs(sum(seconds[unit] * (float(count) if count[0] != "a" else 1) for count, unit in parts) - length) < 1
    if alarm.kind == "timer":
        numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]
        return any(abs(number * unit - length) < 1 for number in numbers for unit in (1, 60, 3600))
    due = datetime.fromtimestamp(alarm.due_at, now.tzinfo)
    named, text = _day_of_month(text, now)
    days = {0: ["tonight" if due.hour >= 17 else "today"], 1: ["tomorrow"]}.get((due.date() - now.date()).days, [])
    days += [f"{due:%A}".lower(), *(day.removesuffix("s") for day in re.findall(r"[a-z]+", alarm.repeat))]
    on_day = named == due.date() or any(day in text for day in days)
    names_day = named or re.search(rf"\b(today|tonight|tomorrow|weekday|weekend|{'|'.join(_ENGLISH.WEEKDAYS)})", text)
    found = re.search(CLOCK_PATTERN, text)
    if found is None or (names_day and not on_day):
        return on_day
    try:
        clock, minutes = read_clock(found[0]), 60 * due.hour + due.minute
    except BadProgram:  # "alarm 45"
        return on_day
    return clock.minutes == minutes or (not clock.certain and (clock.minutes + 720) % 1440 == minutes)


def _day_of_month(text: str, now: datetime) -> tuple[date | None, str]:
    """The day of a month that a text names ("december 5"), and the text without it."""
    found = re.search(rf"\b{_MONTH} (?:the )?{_DAY}|(?<!:)\b{_DAY} (?:of )?{_MONTH}\b", text)
    if found is None:
        return None, text
    try:
        return _ENGLISH.named_date(found[0], now), text.replace(found[0], " ")
    except ValueError:
        return None, text
