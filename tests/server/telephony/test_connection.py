"""Connections that end early: carriers that never start a call, send invalid messages, do not read, or hang up."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from lab.simulator.carriers import CARRIERS
from server.access.admission import Dismissal
from server.telephony import connection
from server.telephony.announcements import Announcements
from server.telephony.carriers.detection import detect_carrier
from server.telephony.connection import Connection
from server.telephony.dialect import Frame
from server.telephony.settings import CallSettings
from tests.fakes import run_on_virtual_clock
from tests.real_time import wait_until
from tests.server.telephony.virtual_call import VirtualCaller, run_call


def test_a_carrier_that_never_sends_start_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> VirtualCaller:
        caller = VirtualCaller()
        caller.reply('{"event": "connected"}')
        announcements = Announcements(caller.speech_models)
        await Connection(caller, "test", caller.settings, announcements, None).run(detect_carrier)
        return caller

    caller = run_on_virtual_clock(run)
    assert caller.closed == (1008, "no start message came within 10 s")
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("frame", "code"),
    [("{nonsense", 1007), ("[]", 1007), (b"\x00", 1007)],
)
def test_a_malformed_message_ends_a_call_with_the_matching_close_code(
    frame: Frame, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(caller: VirtualCaller) -> None:
        await caller.listen(0.1)
        caller.reply(frame)
        await caller.listen(0.2)

    caller = run_call(script)
    assert caller.closed is not None
    assert caller.closed[0] == code
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


@pytest.mark.parametrize("kind", ["unknown event", "unknown stream", "not base64"])
def test_invalid_messages_are_logged_once_and_limited(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    media = json.loads(CARRIERS["twilio"]({}).audio(bytes(160)))
    bad = {
        "unknown event": {"event": "dance"},
        "unknown stream": {**media, "streamSid": "MZ0"},
        "not base64": {**media, "media": {"payload": "%"}},
    }[kind]

    async def script(caller: VirtualCaller) -> None:
        for _ in range(150):
            caller.reply(json.dumps({**bad, "streamSid": bad.get("streamSid") or caller.carrier.stream_id}))
        await caller.ask()
        assert caller.heard_s > 0.4
        for _ in range(250):
            caller.reply(json.dumps({**bad, "streamSid": bad.get("streamSid") or caller.carrier.stream_id}))
        await caller.listen(0.5)

    caller = run_call(script)
    assert caller.closed is not None
    assert caller.closed[0] == 1008
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 2  # the first invalid message, and the end of the call


def test_a_carrier_that_does_not_read_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_MAX_UNREAD_FRAMES", 50)

    class NeverReads(VirtualCaller):
        async def send(self, frame: Frame) -> None:
            await asyncio.sleep(1e6)

    async def script(caller: VirtualCaller) -> None:
        caller.language_model.words = [f" word{n}" for n in range(400)]
        await caller.speak(1.0)
        await caller.listen(20)

    caller = run_call(script, NeverReads())
    assert caller.closed == (1013, "the carrier stopped reading")
    assert caller.admission.dropped_events == 50


def test_a_carrier_that_falls_silent_is_hung_up_on() -> None:
    """Its connection may be half open, which no TCP stack reports."""

    async def script(caller: VirtualCaller) -> None:
        await caller.ask()
        await asyncio.sleep(120)

    caller = run_call(script)
    assert caller.closed == (1000, "the caller was silent")


def test_a_carrier_that_sends_too_much_is_read_slowly_and_huge_frames_are_ignored() -> None:
    frames = 4000

    async def script(caller: VirtualCaller) -> None:
        began = asyncio.get_running_loop().time()
        caller.reply("x" * (2 << 20))
        for _ in range(frames):
            caller.reply(caller.carrier.audio(bytes([255]) * 160))
        await wait_until(caller.to_server.empty)
        assert asyncio.get_running_loop().time() - began > (frames - 2000) / 500 - 0.5

    caller = run_call(script)
    assert caller.closed == (1000, "the caller hung up")


def test_hanging_up_during_a_response_cancels_it() -> None:
    async def script(caller: VirtualCaller) -> None:
        caller.language_model.words = [f" word{n}" for n in range(400)]
        await caller.speak(1.0)
        await caller.listen(1.0)

    caller = run_call(script)
    assert caller.closed == (1000, "the caller hung up")
    assert caller.language_model.cancelled


@pytest.mark.parametrize("name", ["twilio", "audiosocket"])
def test_a_caller_for_whom_no_line_is_free_is_told_so_and_hung_up_on(name: str) -> None:
    caller = VirtualCaller(name, CallSettings(greeting="Hello."))
    caller.slot = None

    async def script(caller: VirtualCaller) -> None:
        await caller.speak(1.0)
        await caller.listen(3.0)

    run_call(script, caller)
    assert "All lines are busy." in " ".join(caller.voice.clauses)
    assert "Hello." not in caller.voice.clauses
    assert caller.heard_s > 0.5
    assert caller.closed == (1000, "every line is busy")
    assert caller.language_model.prompts == []


def test_a_call_that_is_to_end_says_goodbye_after_its_turn() -> None:
    async def script(caller: VirtualCaller) -> None:
        await caller.speak(1.0)
        assert caller.slot is not None
        caller.slot.dismiss(Dismissal("server_shutting_down", "the server is shutting down"))
        await caller.listen(8.0)

    caller = run_call(script)
    assert [role for role, _ in caller.history][:2] == ["user", "assistant"]
    assert "Paris" in caller.history[1][1]  # the response was finished
    assert "hang up now" in " ".join(caller.voice.clauses)
    assert caller.closed == (1000, "the server is shutting down")
