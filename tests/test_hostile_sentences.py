"""What somebody types to keep a server busy: it goes through a session with all built-in tools, and the event loop goes
on with other conversations."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from agent.tools.server_tools import ServerTools, ToolSettings
from tests.fakes import FakeLanguageModel, fake_speech_models
from tests.real_time import HANG_S
from voice import events
from voice.history import Item
from voice.playback import SessionSettings
from voice.session import VoiceSession

MAX_HELD_S = 0.05
"""Longest time, in processor time, that one callback may keep the event loop from others."""

NOTE = "Write down that the shop opens at nine."
SENTENCES = {
    "a thousand spaces": ("What time is it in" + 1000 * " " + "Tokyo?", None),
    "a thousand digits": ("What is " + 1000 * "1" + " times", None),
    "a calculation of a thousand digits": ("What is 12 times 12 + 1?", ("calculate", {"expression": 1000 * "1"})),
    "an argument of spaces": (NOTE, ("write_note", {"text": 4000 * " " + "x"})),
    "an argument of digits and dots": (NOTE, ("write_note", {"text": 2000 * "1." + "x"})),
    "an address that never ends": (NOTE, ("write_note", {"text": "a@" + 2000 * "a." + "@"})),
    "an age": (("so " * 1334)[:3990] + " born in !", None),
    "a sum of times": ("how when " + 1330 * "at ", None),
    "days and hours": ("what " + 1000 * "now a ", None),
    "conditions": (1300 * "if ", None),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_no_sentence_holds_the_event_loop(name: str, tmp_path: Path) -> None:
    text, call = SENTENCES[name]
    asyncio.run(_say(NOTE, call, tmp_path / "first"))  # what the first use of a tool has to read
    held = [asyncio.run(_say(text, call, tmp_path / str(attempt))) for attempt in range(3)]
    assert min(held) <= MAX_HELD_S, f"it was held for {1000 * min(held):.0f} ms"


async def _say(text: str, call: tuple[str, dict[str, str]] | None, folder: Path) -> float:
    """The longest time that a typed message and the response to it hold the event loop, in seconds."""
    server_tools = ServerTools(ToolSettings(data=folder))
    async with asyncio.timeout(HANG_S), server_tools.running():
        tools = server_tools.local_conversation()
        model = FakeLanguageModel(seconds_per_word=0.0, calls=[(call[0], json.dumps(call[1]))] if call else [])
        done = asyncio.Event()

        def on_event(event: events.SessionEvent) -> None:
            if isinstance(event, events.ResponseDone):
                done.set()

        settings = SessionSettings(detect_turns=False, speak=False, tools=tools.declarations)
        session = VoiceSession(model, fake_speech_models(), on_event, settings, tools=tools)
        with _callbacks_timed() as seconds:
            session.history.add(Item("typed", "user", text, spoken=False, complete=True))
            asyncio.get_running_loop().call_soon(session.respond)
            await done.wait()
        await session.close()
    return max(seconds)


@contextmanager
def _callbacks_timed() -> Iterator[list[float]]:
    """The processor time of each callback of the event loop."""
    seconds: list[float] = []
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        start = time.thread_time()
        run(handle)
        seconds.append(time.thread_time() - start)

    with patch.object(asyncio.Handle, "_run", timed):
        yield seconds
