"""The built-in tools for timers and reminders, and their announcement when they are due."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from agent.tools.function_tool import Caller, ServerTool, Spoken, function_tool, tool
from agent.tools.protocol import Announcement
from agent.tools.user_data import Alarm, UserData
from agent.tools.when import UnknownTime, parse_duration, parse_time, spoken_duration
from agent.tools.world_clock import spoken_date, spoken_time

T = TypeVar("T")

_LATE_S = 60.0
"""An announcement that comes later than this says how late it is."""

_RECHECK_S = 3600.0
"""The clock of the machine may be set, so nothing is waited for longer at once."""

_ALARM = r"\b(timers?|alarms?|remind\w*)\b"
_AMOUNT = r"(\d|\b(an?|one|two|three|four|five|six|seven|eight|nine|half|quarter) )"
_STARTS = r"\b((set|start|create|make) (me )?(an?|another|the|\d+|one|two)|remind me)\b"
_TELLS = r"(i|i'll|i'm|i've|we|we'll|we're|it|it's|he|she|they|there|my|our)\b(?!.*\b(timers?|alarms?|count ?down)\b)"
"""How a sentence begins that tells something: "I'll be there in five minutes"."""

_SET_TIMER = (
    rf"^(?!{_TELLS})(?!.*\b(cancel|stop|left|remain\w*|how (many|long|much))\b)(?=.*({_AMOUNT}|{_STARTS}))"
    r".*\b(timers?|alarms?|count ?down|minutes?|seconds?|hours?)\b"
)
_QUESTION = r"[, ]*(how|what|who|whose|where|why|which|whether)"
_SET_REMINDER = (
    r"^(?!.*\b(cancel|stop|delete|remove|clear)\b)"
    rf".*\b(remind me(?!{_QUESTION})|reminder|alarm|wake me|forget to)\b"
)
_LIST = rf"^(?!.*({_STARTS}|\b(cancel|stop|delete|remove)\b)).*{_ALARM}|\bhow (long|much time)\b.*\b(left|remain\w*)\b"
_CANCEL = rf"^(?=.*\b(cancel|stop|delete|remove|clear|forget|off|end)\b).*{_ALARM}"
"""What people say who want each of the tools."""

_WAKE = re.compile(
    r"(?i)(?:please |can you |could you |would you |will you )*(?:wake me(?: up)?|set an alarm(?: for me)?) "
    r"(?:for|at|in|tomorrow|on|this|by)\b[^.?!]*[.?!]*"
)
"""A request for an alarm that has a time and nothing else."""

_NO_NAME = re.compile(r"(?i)(an?|the|my|another|this|that|hours?|minutes?|seconds?|countdown|new|set|start)")
"""Words before "timer" that are not its name."""

Announce = Callable[[Announcement], None]
"""Says a text to an owner."""


class Alarms:
    """The timers and reminders of all owners. Those that are due are announced to their owner if connected, otherwise
    when they connect next.

    Args:
        now: the time here, with its zone.
    """

    def __init__(self, data: UserData, now: Callable[[], datetime]) -> None:
        self._data, self._now = data, now
        self._connected: dict[str, list[_Announcer]] = {}

    def connect(self, owner: str, announce: Announce) -> Callable[[], None]:
        """An owner is connected. Returns what to call when they no longer are."""
        announcer = _Announcer(self._data, owner, announce, self._timestamp)
        self._connected.setdefault(owner, []).append(announcer)

        def disconnect() -> None:
            announcer.close()
            self._connected[owner].remove(announcer)
            if not self._connected[owner]:
                del self._connected[owner]

        return disconnect

    def forget(self, owner: str) -> None:
        """Forget all that is kept for an owner."""
        self._data.forget(owner)

    def _timestamp(self) -> float:
        return self._now().timestamp()

    def _changed(self, owner: str) -> None:
        for announcer in self._connected.get(owner, ()):
            announcer.reschedule()

    def tools(self) -> list[ServerTool]:
        """The tools."""

        @tool(said=_SET_TIMER)
        async def set_timer(duration: str, caller: Caller) -> Spoken:
            """Start a countdown timer."""
            try:
                length = _understood(parse_duration, duration, caller)
            except UnknownTime:
                return Spoken("For how long?")
            start, name = self._timestamp(), _name(caller.said)
            self._data.add_alarm(caller.owner, "timer", name, start, start + length.total_seconds())
            self._changed(caller.owner)
            what = f"{name} timer" if name else "timer"
            return Spoken(f"Your {what} for {spoken_duration(length)} is running.")

        def certain_alarm(turns: Sequence[tuple[str, str]]) -> tuple[dict[str, Any], str] | None:
            said = turns[-1][0]
            if _WAKE.fullmatch(said.strip()):
                with suppress(UnknownTime):
                    parse_time(said, self._now())
                    return {"about": "wake up", "when": said}, said
            return None

        @tool(said=_SET_REMINDER, certain=certain_alarm)
        async def set_reminder(about: str, when: str, caller: Caller) -> Spoken:
            """Remind the user of something later."""
            now = self._now()
            try:
                moment = _understood(lambda text: parse_time(text, now), when, caller)
            except UnknownTime:
                return Spoken("When should I remind you?")
            about = _what_to_do(about, caller)
            self._data.add_alarm(caller.owner, "reminder", about.strip(), now.timestamp(), moment.timestamp())
            self._changed(caller.owner)
            day = "" if moment.date() == now.date() else f" on {spoken_date(moment)}"
            if moment.date() == (now + timedelta(days=1)).date():
                day = " tomorrow"
            return Spoken(f"I'll remind you{day} at {spoken_time(moment)}: {about.strip().rstrip('.')}.")

        @tool(read_only=True, said=_LIST)
        async def list_timers(caller: Caller) -> Spoken:
            """Tell which timers and reminders are set."""
            alarms, now = self._data.alarms(caller.owner), self._now()
            if not alarms:
                return Spoken("You have no timers or reminders.")
            return Spoken(" ".join(_describe(alarm, now) for alarm in alarms[:8]))

        @tool(said=_CANCEL)
        async def cancel_timer(caller: Caller, name: str = "") -> Spoken:
            """Cancel timers or reminders."""
            alarms = self._data.alarms(caller.owner)
            chosen = _chosen(alarms, caller.named(name), caller.said)
            if not chosen:
                return Spoken("There is no such timer." if alarms else "You have no timers or reminders.")
            if len(chosen) > 1 and not re.search(r"(?i)\b(all|every|both|timers|reminders|alarms)\b", caller.said):
                return Spoken(f"There are {len(chosen)}. Which one shall I cancel?")
            for alarm in chosen:
                self._data.remove_alarm(alarm.id)
            self._changed(caller.owner)
            what = "It is" if len(chosen) == 1 else f"{len(chosen)} timers are"
            return Spoken(f"{what} cancelled.")

        return [function_tool(each) for each in (set_timer, set_reminder, list_timers, cancel_timer)]


class _Announcer:
    """Announces what is due to one connected owner."""

    def __init__(self, data: UserData, owner: str, announce: Announce, timestamp: Callable[[], float]) -> None:
        self._data, self._owner, self._announce, self._timestamp = data, owner, announce, timestamp
        self._announced: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.reschedule()

    def reschedule(self) -> None:
        """Announce what is due, and come back for the next."""
        self.close()
        now, alarms = self._timestamp(), self._data.alarms(self._owner)
        for alarm in alarms:
            if alarm.due_at <= now and alarm.id not in self._announced:
                self._announced.add(alarm.id)
                forget = partial(self._data.remove_alarm, alarm.id)
                self._announce(Announcement(_announcement(alarm, now), forget))
        waits = [alarm.due_at - now for alarm in alarms if alarm.due_at > now]
        if waits:
            self._timer = asyncio.get_running_loop().call_later(min(*waits, _RECHECK_S), self.reschedule)

    def close(self) -> None:
        """Announce nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _announcement(alarm: Alarm, now: float) -> str:
    late_s = now - alarm.due_at
    ago = f" It was due {spoken_duration(timedelta(seconds=late_s))} ago." if late_s > _LATE_S else ""
    if alarm.kind == "reminder":
        return f"Here is your reminder: {alarm.text.rstrip('.')}.{ago}"
    length = spoken_duration(timedelta(seconds=alarm.due_at - alarm.set_at))
    what = f"{alarm.text} timer" if alarm.text else "timer"
    return f"Your {what} for {length} is up.{ago}"


def _describe(alarm: Alarm, now: datetime) -> str:
    due = datetime.fromtimestamp(alarm.due_at, now.tzinfo)
    if alarm.kind == "reminder":
        return f"At {spoken_time(due)} on {spoken_date(due)}: {alarm.text.rstrip('.')}."
    left = spoken_duration(max(timedelta(seconds=1), due - now))
    return f"The {alarm.text} timer has {left} left." if alarm.text else f"A timer has {left} left."


def _understood(parse: Callable[[str], T], argument: str, caller: Caller) -> T:
    """A time that the language model has written down, if it uses the user's words, otherwise the time in these. Raises
    UnknownTime: small models make up what the user has not said."""
    if caller.has(argument):
        with suppress(UnknownTime):
            return parse(argument)
    return parse(caller.said)


def _name(said: str) -> str:
    """The name that the user gives a timer: "a pasta timer", "a timer for the eggs"."""
    named = re.search(r"(?i)\btimer for (?:the|my) ([a-z]+)", said) or re.search(r"(?i)\b([a-z]+) timer\b", said)
    return named[1] if named is not None and not _NO_NAME.fullmatch(named[1]) else ""


def _what_to_do(about: str, caller: Caller) -> str:
    """What to remind of, without the words that ask for it; as the user said it, if the model says something else."""
    if not caller.has(about) and (asked := re.search(r"(?i)\bremind me (.+)", caller.said)):
        about = asked[1].rstrip(".?!")
    return re.sub(r"(?i)^(please )?(remind|reminder)?( me)?\s*(to|that|about|of) ", "", about.strip())


def _chosen(alarms: list[Alarm], name: str, said: str) -> list[Alarm]:
    """The timers and reminders that are meant: by their kind, by the length that the user said, or by their name."""
    kinds = {kind for kind, word in (("timer", "timer"), ("reminder", "remind")) if word in said.lower()}
    candidates = [alarm for alarm in alarms if not kinds or alarm.kind in kinds]
    with suppress(UnknownTime):
        seconds = parse_duration(said).total_seconds()
        return [alarm for alarm in candidates if abs(seconds - (alarm.due_at - alarm.set_at)) < 1]
    ignored = ("timers", "timer", "reminders", "reminder", "the", "my", "all", "every", "about")
    words = " ".join(word for word in re.findall(r"[a-z]+", name.lower()) if word not in ignored)
    return [alarm for alarm in candidates if words in alarm.text.lower()]
