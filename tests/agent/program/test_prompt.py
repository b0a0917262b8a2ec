"""What a language model reads that writes a program, and the examples that it is trained with."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from llguidance import LLMatcher, LLTokenizer

from agent.program.check import missing_number
from agent.program.evaluator import run_program
from agent.program.grammar import program_grammar
from agent.program.prompt import INSTRUCTIONS, inability, program_messages, with_missing
from agent.tools.conversation_tools import ConversationTools
from agent.tools.server_tools import ServerTools, ToolSettings
from agent.tools.weather import WeatherSettings
from chat.types import Message, Tool
from lab.convert.programs import read_examples, varied

NOW = datetime(2026, 11, 22, 15, 0, tzinfo=ZoneInfo("Europe/Berlin"))
LIGHT = Tool("set_light", "", {"type": "object", "properties": {"room": {"type": "string"}}})


@pytest.fixture
def tools(tmp_path: Path) -> ConversationTools:
    weather = WeatherSettings("http://127.0.0.1:9")
    return ServerTools(
        ToolSettings(data=tmp_path, weather=weather, search_url="http://127.0.0.1:9")
    ).local_conversation()


def test_the_instructions_name_the_functions_of_the_server_with_their_parameters(tools: ConversationTools) -> None:
    assert {tool.name for tool in tools.functions} == {tool.name for tool in with_missing(())}
    for tool in tools.functions:
        assert f"{tool.name}({', '.join(tool.parameters['properties'])})" in INSTRUCTIONS
    (system, said) = program_messages(tools.functions, [], "And for twenty minutes?")
    assert system == Message("system", INSTRUCTIONS) and said == Message("user", "And for 20 minutes?")


def test_after_them_the_prompt_says_which_other_functions_there_are(tools: ConversationTools) -> None:
    (system, _) = program_messages((*tools.functions, LIGHT), [], "Light, please.")
    assert system.content == f"{INSTRUCTIONS}, set_light(room)"


def test_functions_that_a_server_lacks_can_be_written_and_are_refused_by_name(tools: ConversationTools) -> None:
    present = tuple(tool for tool in tools.functions if tool.name not in ("get_weather", "search_web"))
    *kept, weather, search = with_missing((*present, LIGHT))
    assert kept == [*present, LIGHT] and (weather.name, search.name) == ("get_weather", "search_web")
    tokenizer = LLTokenizer("byte")
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(program_grammar((weather, search)).source))
    program = 'get_weather("Oslo", day="tomorrow")\nsearch_web("ferry prices")\nget_weather()'
    ids = tokenizer.tokenize_str(program)
    assert matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()
    assert inability(["search_web", "get_weather", "search_web"]) == "search the web or tell the weather"
    assert inability([]) == ""


def test_earlier_turns_come_with_their_programs() -> None:
    turns = [("Half an hour.", "set_timer(minutes=30)"), ("How are you?", "talk()")]
    assert program_messages((), turns, "Thanks.")[1:] == [
        Message("user", "30 minutes."), Message("assistant", "set_timer(minutes=30)"),
        Message("user", "How are you?"), Message("assistant", "talk()"), Message("user", "Thanks."),
    ]  # fmt: skip


def test_every_example_follows_the_grammar_and_runs_with_what_was_said(tools: ConversationTools) -> None:
    functions = {tool.name: list(tool.parameters["properties"]) for tool in tools.functions}
    tokenizer = LLTokenizer("byte")
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(program_grammar(tools.functions).source))
    examples = list(read_examples())
    assert len(examples) > 2000
    for example in examples:
        said = []
        for words, program in example:
            said.append(words)
            assert not missing_number(run_program(program, NOW, functions), said), example
            ids = tokenizer.tokenize_str(program)
            assert matcher.reset() and matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting(), example


def test_examples_are_varied_without_losing_what_was_asked_for() -> None:
    examples = [((f"Weather in Rome, and {n}.5 plus 1?", 'get_weather("Rome")\nanswer = 2'),) for n in range(200)]
    all_varied = [varied(example, 1) for example in examples]
    assert all_varied == [varied(example, 1) for example in examples]
    plain = [one for one in all_varied if one[0][0] == one[0][0].lower()]
    assert plain and plain[0][0][0].startswith("weather in rome and ")
    assert 20 < len(plain) < 45 and all(one[0][1] == examples[0][0][1] for one in all_varied)
