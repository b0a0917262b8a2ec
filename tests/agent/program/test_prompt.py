"""What a language model reads that writes a program."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from agent.program import prompt
from agent.program.check import missing_number
from agent.program.evaluator import run_program
from agent.program.prompt import program_messages
from agent.tools.conversation_tools import ConversationTools
from agent.tools.server_tools import ServerTools, ToolSettings
from agent.tools.weather import WeatherSettings
from chat.types import Message, Tool

NOW = datetime(2026, 11, 22, 15, 0, tzinfo=ZoneInfo("Europe/Berlin"))
EXAMPLES = [example.partition("\n")[::2] for example in prompt._EXAMPLES.split("\n\n")]
TIMER = Tool("set_timer", "", {"type": "object", "properties": {"hours": {"type": "number"}}})


@pytest.fixture
def tools(tmp_path: object) -> ConversationTools:
    weather = WeatherSettings("http://127.0.0.1:9")
    return ServerTools(
        ToolSettings(data=tmp_path, weather=weather, search_url="http://127.0.0.1:9")
    ).local_conversation()


def test_only_examples_with_the_functions_that_there_are_are_shown() -> None:
    (system, said) = program_messages((TIMER,), [], "And for twenty minutes?")
    assert said == Message("user", "And for 20 minutes?")
    assert "Functions: set_timer(hours), ask(question), cannot(reason), talk()." in system.content
    assert "\nset_timer(" in system.content and "\ntalk()" in system.content and "\nanswer = " in system.content
    assert "set_alarm" not in system.content and "get_weather" not in system.content


def test_earlier_turns_come_with_their_programs() -> None:
    turns = [("Half an hour.", "set_timer(minutes=30)"), ("How are you?", "talk()")]
    assert program_messages((), turns, "Thanks.")[1:] == [
        Message("user", "30 minutes."), Message("assistant", "set_timer(minutes=30)"),
        Message("user", "How are you?"), Message("assistant", "talk()"), Message("user", "Thanks."),
    ]  # fmt: skip


@pytest.mark.parametrize(("said", "program"), EXAMPLES)
def test_every_example_runs_with_the_servers_functions_and_what_was_said(
    said: str, program: str, tools: ConversationTools
) -> None:
    functions = {tool.name: list(tool.parameters["properties"]) for tool in tools.functions}
    assert not missing_number(run_program(program, NOW, functions), [said])
