"""Requests that real tools answer, one after another, with a language model that is told what to call or to write."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from agent.tools.protocol import Announcement
from agent.tools.server_tools import ServerTools, ToolSettings
from chat.types import Ask
from lab.benchmarks.tool_loops import tune_tools
from tests.fakes import FakeLanguageModel, FakeProgress, fake_speech_models
from tests.real_time import HANG_S
from voice import events
from voice.history import FunctionCall, FunctionCallOutput, Item
from voice.playback import SessionSettings
from voice.session import VoiceSession


class ScriptedLanguageModel(FakeLanguageModel):
    """Calls the first function of its `script` whose pattern is found in the newest message, and that is on offer. Else
    it answers with what it was told last."""

    script: Sequence[tuple[str, str, str]] = ()

    async def reply(self, ask: Ask) -> AsyncIterator[FakeProgress]:
        self.prompts.append(list(ask.messages))
        newest, offered = ask.messages[-1].content, {tool.name for tool in ask.tools}
        for pattern, name, arguments in self.script:
            if re.search(pattern, newest) and name in offered:
                async for progress in self._call([(name, arguments)]):
                    yield progress
                return
        yield FakeProgress(f"So: {newest}", finished="stop")


async def ask(tools: ServerTools, request: str, *script: tuple[str, str, str]) -> VoiceSession:
    """A conversation after the response to a request."""
    model = ScriptedLanguageModel(seconds_per_word=0.0, programs={"another request": []})
    model.script = script
    return await converse(tools, request, model)


async def converse(tools: ServerTools, request: str, model: FakeLanguageModel) -> VoiceSession:
    conversation = tools.local_conversation()
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


@pytest.mark.parametrize(
    ("request_", "program", "called", "answer"),
    [
        ("Note that the plumber comes.", 'write_note("the plumber comes")', ["write_note"],
         "I wrote down: the plumber comes."),
        ("How much is 15 percent of 240 plus tax?", "answer = 0.15 * 240, \"euros\"", ["calculate"],
         "That's 36 euros."),
        ("How much is 15 percent of 240? And note it.", 'answer = 0.15 * 240\nwrite_note("15 percent of 240")',
         ["calculate", "write_note"], "That's 36. I wrote down: 15 percent of 240."),
        ("Delete my notes.", "delete_notes()", ["delete_notes"], "Shall I delete your notes?"),
        ("Set a timer.", "set_timer()", ["set_timer"], "For how long?"),
    ],
)  # fmt: skip
async def test_what_a_program_calls_is_called_and_its_results_are_said(
    tools: ServerTools, request_: str, program: str, called: list[str], answer: str
) -> None:
    async with tools.running():
        session = await converse(tools, request_, FakeLanguageModel(programs={request_: [program]}))
    assert made(session) == called
    assert said(session) == answer


async def test_a_closed_form_is_answered_without_a_language_model(tools: ServerTools) -> None:
    async with tools.running():
        model = FakeLanguageModel(programs={"": []})
        session = await converse(tools, "What is 17 times 23?", model)
    assert (made(session), said(session), model.asked) == (["calculate"], "That's 391.", [])


async def test_steps_are_bounded(tools: ServerTools) -> None:
    async with tools.running():
        session = await ask(tools, "Look up Anna.", ("", "find_contact", '{"name": "Anna"}'))
    assert returned(session)[0].startswith('{"name": "Anna Weber"')
    assert len(made(session)) <= 6


async def test_the_language_model_goes_on_to_another_tool_by_itself(tools: ServerTools) -> None:
    """The second call takes its number from the output of the first."""
    async with tools.running():
        session = await ask(
            tools, "Text Marco that the meeting is cancelled.",
            ("^Text Marco", "find_contact", '{"name": "Marco"}'),
            ('"name": "Marco Rossi"', "send_message", '{"number": "555 0199", "text": "The meeting is cancelled."}'),
        )  # fmt: skip
    assert made(session) == ["find_contact", "send_message"]
    assert said(session) == "So: Sent to 555 0199: The meeting is cancelled."


async def test_the_words_of_the_users_notes_are_names_that_they_may_say(tmp_path: Path) -> None:
    tools = ServerTools(ToolSettings(data=tmp_path))
    conversation = tools.local_conversation()
    await conversation.call("write_note", json.dumps({"text": "Take the amlodipine at 8."}))
    assert conversation.names()[:2] == ["Take", "amlodipine"]
    conversation.enable(())
    assert not conversation.names()


def files_of(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


async def test_what_a_conversation_without_an_owner_keeps_is_never_written(tmp_path: Path) -> None:
    tools = ServerTools(ToolSettings(data=tmp_path))
    async with tools.running():
        heard = asyncio.Queue[Announcement]()
        nobody, other, local = tools.conversation(), tools.conversation(), tools.local_conversation()
        for conversation in (nobody, other):
            conversation.enable(tools.registry)
        nobody.connect(heard.put_nowait)
        nobody.add_pronunciations({"Xylophone": "zylofone"})
        await nobody.call("write_note", json.dumps({"text": "A secret sentence."}))
        await nobody.call("set_timer", json.dumps({"seconds": 0.01, "name": "secret"}))
        await local.call("write_note", json.dumps({"text": "A sentence that stays."}))
        (await asyncio.wait_for(heard.get(), HANG_S)).on_heard()
        assert (await nobody.call("read_notes", "{}")).text == "Your note says: A secret sentence."
        assert nobody.pronunciations == {"Xylophone": "zylofone"}
        assert (await other.call("read_notes", "{}")).text == "You have no notes."
        written = files_of(tmp_path)
        assert b"A sentence that stays" in written
        assert not [text for text in (b"secret", b"zylofone", b"conversation:") if text in written]
        nobody.close()
        await local.call("set_timer", json.dumps({"minutes": 1}))  # after what was to be forgotten
        assert (await nobody.call("read_notes", "{}")).text == "You have no notes."
        assert nobody.pronunciations == {}
