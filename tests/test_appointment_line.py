"""The appointment line of docs/examples, called by the simulated carrier: from the first word to the row in SQLite."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from agent.capture import Date
from agent.tools.server_tools import ServerTools, ToolSettings
from server.realtime.conversation import RealtimeConversation
from server.realtime.events import ServerEvent
from tests.fakes import LoudnessDetector
from tests.server.realtime.conversation_client import new_conversation
from tests.server.telephony.virtual_call import VirtualCaller, run_call
from voice import session

EXAMPLE = Path(__file__).parent.parent / "docs" / "examples" / "appointments.py"
MONDAY = date(2026, 11, 23)


class Patient(VirtualCaller):
    """Calls the appointment line. `heard` is what was said to them since they last spoke."""

    def __init__(self, tools: ServerTools, carrier: str = "twilio") -> None:
        super().__init__(carrier)
        self.tools, self._said = tools, 0

    def open_conversation(self, send: Callable[[ServerEvent], None], restored: object) -> RealtimeConversation:
        self.conversation = new_conversation(
            self.language_model, self.speech_models, send, slot=self.slot, tools=self.tools
        )
        own, clock = self.conversation.session, asyncio.get_running_loop().time
        # Otherwise what was heard is counted in real time.
        own._clock, own._playback._context = clock, replace(own._playback._context, clock=clock)
        assert self.conversation.tools is not None
        self.conversation.tools.open_call(own.open_with)
        return self.conversation

    @property
    def heard(self) -> str:
        return " ".join(self.voice.clauses[self._said :])

    async def say(self, text: str) -> str:
        """Say something, and return what was answered."""
        self._said = len(self.voice.clauses)
        self.speech_models.recognizer.text = text  # type: ignore[attr-defined]
        await self.speak(1.0)
        return await self.wait()

    async def type(self, keys: str) -> str:
        self._said = len(self.voice.clauses)
        self.press(keys)
        return await self.wait()

    async def wait(self) -> str:
        """Listen until the line is silent for two seconds."""
        await self.listen(2.0)
        while self.play_until > asyncio.get_running_loop().time() - 2.0:
            await self.listen(0.1)
        return self.heard


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerTools:
    async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)  # a virtual clock does not wait for threads

    monkeypatch.setattr(asyncio, "to_thread", at_once)
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)
    defaults = Date.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "today", lambda: MONDAY)
    monkeypatch.setenv("APPOINTMENTS", str(tmp_path / "appointments.db"))
    return ServerTools(ToolSettings((EXAMPLE,), builtin=False, data=tmp_path))


def bookings(tmp_path: Path) -> list[tuple[str, ...]]:
    with sqlite3.connect(tmp_path / "appointments.db") as connection:
        return connection.execute("select * from appointments order by day, at").fetchall()


def test_a_caller_books_an_appointment(tools: ServerTools, tmp_path: Path) -> None:
    async def script(caller: VirtualCaller) -> None:
        assert isinstance(caller, Patient)
        assert (await caller.wait()).startswith("Welcome to the appointment line of the dental practice.")
        assert "S, M, I, T, H." in await caller.say("It's Smith, S-M-I-T-H.")
        assert "And your phone number?" in await caller.say("Yes.")
        assert "five five five. Please go on." in await caller.say("Five five five,")
        assert "one two three, four five six seven" in await caller.say("123-4567.")
        assert "four five six eight. Is that right?" in await caller.say("No, the last digit is eight.")
        assert "For which day" in await caller.say("That's right.")
        assert "closed at weekends" in await caller.say("Next Sunday.")
        assert "Tuesday, November twenty-fourth. Is that right?" in await caller.say("Then tomorrow.")
        assert "At what time?" in await caller.say("yes")
        assert "2:30 in the afternoon. Is that right?" in await caller.say("half past two")
        booked = "Let me see. Your appointment is on Tuesday, November twenty-fourth, at 2:30 in the afternoon."
        assert booked in await caller.say("Yes, please.")
        assert await caller.say("Thank you!") == "The capital of France is Paris."  # the language model has it again

    patient = Patient(tools)
    run_call(script, patient)
    assert bookings(tmp_path) == [("2026-11-24", "14:30", "Smith", "5551234568")]
    assert len(patient.language_model.prompts) == 1
    call, output, *_ = (
        message for message in patient.language_model.prompts[0] if message.tool_calls or message.role == "tool"
    )
    assert call.tool_calls[0].name == "book_appointment"
    assert "running" in output.content


def test_a_time_is_not_booked_twice_and_keys_do_as_well_as_words(tools: ServerTools, tmp_path: Path) -> None:
    async def script(caller: VirtualCaller) -> None:
        assert isinstance(caller, Patient)
        await caller.wait()
        await caller.say("J-O-N-E-S")
        await caller.say("yes")
        assert "press 1" in await caller.type("5559876543#")
        assert "For which day" in await caller.type("1")
        await caller.type("1124#")
        await caller.type("1")
        await caller.type("1430#")
        refused = await caller.type("1")
        assert "2:30 in the afternoon is taken" in refused
        assert "9 o'clock in the morning and 9:30 in the morning and 10 o'clock in the morning are free" in refused
        await caller.say("the same day, tomorrow")
        await caller.say("yes")
        await caller.say("nine thirty")
        assert "Your appointment is on Tuesday" in await caller.say("yes")

    with sqlite3.connect(tmp_path / "appointments.db") as connection:
        connection.execute(
            "create table appointments (day text, at text, name text, phone text, primary key (day, at))"
        )
        connection.execute("insert into appointments values ('2026-11-24', '14:30', 'Smith', '5551234568')")
    run_call(script, Patient(tools, "telnyx"))
    assert bookings(tmp_path) == [
        ("2026-11-24", "09:30", "Jones", "5559876543"),
        ("2026-11-24", "14:30", "Smith", "5551234568"),
    ]


def test_a_caller_who_does_not_go_on_books_nothing(tools: ServerTools, tmp_path: Path) -> None:
    async def script(caller: VirtualCaller) -> None:
        assert isinstance(caller, Patient)
        await caller.wait()
        assert "I have booked nothing." in await caller.say("Never mind.")

    run_call(script, Patient(tools))
    assert not (tmp_path / "appointments.db").exists()
