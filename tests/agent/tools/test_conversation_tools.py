"""Requests that need one tool after another: real tools, and a language model that is told what to call."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.tools.server_tools import ServerTools, ToolSettings
from chat.types import Message
from lab.benchmarks.tool_loops import tune_tools
from tests.fakes import FakeLanguageModel, FakeProgress, fake_speech_models
from voice import events
from voice.history import FunctionCall, FunctionCallOutput, Item
from voice.playback import SessionSettings
from voice.session import VoiceSession


class ScriptedLanguageModel(FakeLanguageModel):
    """Calls the first function of its `script` whose pattern is found in the newest message, and that is on offer. Else
    it answers with what it was told last."""

    script: Sequence[tuple[str, str, str]] = ()

    async def reply(self, messages: Sequence[Message], **options: Any) -> AsyncIterator[FakeProgress]:
        self.prompts.append(list(messages))
        newest, offered = messages[-1].content, options["offered"].names
        for pattern, name, arguments in self.script:
            if re.search(pattern, newest) and name in offered:
                async for progress in self._call([(name, arguments)]):
                    yield progress
                return
        yield FakeProgress(f"So: {newest}", finished="stop")


async def ask(tools: ServerTools, request: str, *script: tuple[str, str, str]) -> VoiceSession:
    """A conversation after the response to a request."""
    conversation = tools.local_conversation()
    model = ScriptedLanguageModel(seconds_per_word=0.0)
    model.script = script
    session_events: asyncio.Queue[events.SessionEvent] = asyncio.Queue()
    settings = SessionSettings(detect_turns=False, speak=False, tools=conversation.declarations)
    session = VoiceSession(model, fake_speech_models(), session_events.put_nowait, settings, tools=conversation)
    session.history.add(Item("question", "user", request, spoken=False, complete=True))
    session.respond()
    while not isinstance(await session_events.get(), events.ResponseDone):
        pass
    await session.close()
    return session


def made(session: VoiceSession) -> list[str]:
    return [item.name for item in session.history.items if isinstance(item, FunctionCall)]


def returned(session: VoiceSession) -> list[str]:
    return [item.text for item in session.history.items if isinstance(item, FunctionCallOutput)]


def said(session: VoiceSession) -> str:
    (message,) = [item for item in session.history.items if isinstance(item, Item) and item.role == "assistant"]
    return message.text


@pytest.fixture
def tools(tmp_path: Path) -> ServerTools:
    return ServerTools(ToolSettings((Path(tune_tools.__file__),), data=tmp_path))


async def test_a_result_is_written_down(tools: ServerTools) -> None:
    async with tools.running():
        session = await ask(
            tools, "What is 15 percent of 240? Write that down.",
            ("15 percent of 240", "calculate", '{"expression": "0.15 * 240"}'),
            ("^Write that down", "write_note", '{"text": "15 percent of 240 is 36."}'),
            ("^Read", "read_notes", "{}"),
        )  # fmt: skip
        assert made(session) == ["calculate", "write_note"]
        assert said(session).endswith(" I wrote down: 15 percent of 240 is 36.")
        notes = await ask(tools, "Read me my notes.", ("^Read", "read_notes", "{}"))
        assert said(notes) == "Your note says: 15 percent of 240 is 36."


async def test_a_second_tool_takes_its_time_from_the_first_ones_result(tools: ServerTools) -> None:
    """The flight has two times, so the language model is told both and chooses."""
    async with tools.running():
        session = await ask(
            tools, "When does flight BA 17 land, and what time is that in Sydney?",
            ("^When does", "find_flight", '{"flight": "BA 17"}'),
            ("^what time", "get_time", '{"place": "Sydney"}'),
        )  # fmt: skip
    assert made(session) == ["find_flight", "get_time"]
    times = returned(session)[1]
    assert re.fullmatch(r"5:45 PM here is .* in Sydney\. 9:05 PM here is .* in Sydney\.", times)
    assert said(session).endswith(f"So: {times}")


async def test_a_part_is_asked_for_after_the_answer_to_the_one_before(tools: ServerTools) -> None:
    async with tools.running():
        session = await ask(
            tools, "Look up my next appointment and tell me what time that is in Tokyo.",
            ("^Look up", "next_appointment", "{}"),
            ("^tell me", "get_time", '{"place": "Tokyo"}'),
        )  # fmt: skip
    assert made(session) == ["next_appointment", "get_time"]
    answer, _, converted = said(session).partition("} ")
    assert answer.startswith("So: {") and "15:30" in answer
    assert converted.startswith("3:30 PM here is ") and converted.endswith(" in Tokyo.")


async def test_steps_are_bounded(tools: ServerTools) -> None:
    async with tools.running():
        session = await ask(tools, "Look up Anna.", ("", "find_contact", '{"name": "Anna"}'))
    assert returned(session)[0].startswith('{"name": "Anna Weber"')
    assert len(made(session)) <= 6


async def test_the_language_model_goes_on_to_another_tool_by_itself(tools: ServerTools) -> None:
    """Nothing separates this request, so the second call follows the output of the first."""
    async with tools.running():
        session = await ask(
            tools, "Text Marco that the meeting is cancelled.",
            ("^Text Marco", "find_contact", '{"name": "Marco"}'),
            ('"name": "Marco Rossi"', "send_message", '{"number": "555 0199", "text": "The meeting is cancelled."}'),
        )  # fmt: skip
    assert made(session) == ["find_contact", "send_message"]
    assert said(session) == "So: Sent to 555 0199: The meeting is cancelled."
