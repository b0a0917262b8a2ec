"""The simulated phone: what it notes of the frames that it receives."""

from __future__ import annotations

import asyncio
import json

import pytest

from cli import call
from lab.simulator.call import CallOutcome
from lab.simulator.carriers import CARRIERS, CalledFunction, Frame
from lab.simulator.phone import Phone

CALL = {"event": "rejoinder.function", "name": "get_time", "arguments": "{}", "output": "[noon]"}


class Line:
    """A transport that delivers frames."""

    def __init__(self, *frames: Frame) -> None:
        self.frames = list(frames)

    async def send(self, frame: Frame) -> None:
        pass

    async def receive(self) -> Frame | None:
        return self.frames.pop(0) if self.frames else None

    async def close(self) -> None:
        pass

    async def abort(self) -> None:
        pass


async def test_a_phone_notes_function_calls_and_what_no_carrier_would_accept() -> None:
    phone = Phone(CARRIERS["twilio"]({}), Line(json.dumps(CALL), json.dumps({**CALL, "event": "dance"})))
    await phone.start(microphone=False)
    await asyncio.wait_for(phone.disconnected.wait(), 10)
    await phone.hang_up()
    assert [called for _, called in phone.functions] == [CalledFunction("get_time", "{}", "[noon]")]
    assert len(phone.violations) == 1 and "dance" in phone.violations[0]


def test_the_command_shows_function_calls(capsys: pytest.CaptureFixture[str]) -> None:
    call._print([CallOutcome(functions=[(2.34, CalledFunction("get_time", "{}", "[noon]"))])])
    assert "call 1, 2.3 s: get_time({}) → [noon]" in capsys.readouterr().out
