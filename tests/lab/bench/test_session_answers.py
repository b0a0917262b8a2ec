"""Answers of a session that has the built-in tools."""

from __future__ import annotations

from pathlib import Path

from agent.tools.server_tools import ServerTools, ToolSettings
from lab.bench.session_answers import SessionAnswer, ask_session
from tests.fakes import FakeLanguageModel, fake_speech_models


async def test_a_tool_answers_or_the_language_model(tmp_path: Path) -> None:
    tools = ServerTools(ToolSettings(data=tmp_path)).conversation()
    tools.enable(["calculate", "get_time"])
    model = FakeLanguageModel()
    model.calls = [("calculate", '{"expression": "17 * 23"}')]
    models = fake_speech_models()
    answers = await ask_session(model, models, tools, ["What is 17 times 23?"], "Be brief.", 20)
    assert answers == [SessionAnswer("That's 391.", "closed form")]
    spoken = await ask_session(FakeLanguageModel(), models, tools, ["Hello.", "Who is it?"], "Be brief.", 20)
    assert [answer.policy for answer in spoken] == ["local model"] * 2 and all(answer.text for answer in spoken)
