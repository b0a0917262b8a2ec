"""The server's own tools in Realtime conversations: on request only, called by the server, shown as MCP calls."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.tools import function_tool, user_data
from agent.tools.server_tools import ServerTools, ToolSettings
from agent.tools.weather import WeatherSettings
from chat.types import Ask
from server.mcp_access import OWN_URL
from tests.fakes import FakeLanguageModel, FakeProgress, InlineExecutor
from tests.server.realtime.conversation_client import Client, check_against_openai, hold_conversation, one_turn

OWN = {"type": "mcp", "server_label": "rejoinder", "server_url": OWN_URL}
PLAIN_TOOL = '"""Tools."""\n\ndef dice(sides: int) -> str:\n    """Roll a die."""\n    return f"{sides} of {sides}"\n'


@pytest.fixture
def tools(tmp_path: Path) -> ServerTools:
    (tmp_path / "my_tools.py").write_text(PLAIN_TOOL)
    return ServerTools(ToolSettings((tmp_path / "my_tools.py",), data=tmp_path))


async def ask_for_tools(client: Client, **settings: Any) -> None:
    client.language_model.calls = [("get_time", '{"place": "Tokyo"}')]
    await client.configure(tools=[{**OWN, **settings}], include=["rejoinder.turn"])
    await asyncio.sleep(0.2)


def of_type(client: Client, type: str) -> list[dict[str, Any]]:
    return [event for event in client.events if event["type"] == type]


@pytest.fixture(autouse=True)
def inline_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a virtual clock nothing may wait for a thread."""

    async def to_thread(function: Any, *args: Any) -> Any:
        return function(*args)

    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    monkeypatch.setattr(function_tool, "_THREADS", InlineExecutor())
    monkeypatch.setattr(user_data, "ThreadPoolExecutor", lambda *args, **named: InlineExecutor())


def test_the_server_answers_with_a_tool_of_its_own(tools: ServerTools) -> None:
    async def scenario(client: Client) -> None:
        await ask_for_tools(client)
        await one_turn(client)

    client = hold_conversation(scenario, tools)
    check_against_openai([event for event in client.events if not event["type"].startswith("session.")])
    (done,) = of_type(client, "response.done")
    call, message = done["response"]["output"]
    assert (call["type"], call["name"], call["server_label"]) == ("mcp_call", "get_time", "rejoinder")
    assert message["content"][0]["transcript"].startswith("It is ")
    finished = [e["item"] for e in of_type(client, "conversation.item.done") if e["item"]["type"] == "mcp_call"]
    assert [item["output"] for item in finished] == [message["content"][0]["transcript"]]
    order = [t for t in client.types() if "mcp_call" in t or t == "response.done"]
    assert order[-3:] == ["response.mcp_call.in_progress", "response.mcp_call.completed", "response.done"]
    assert not [event for event in client.events if event.get("item", {}).get("type") == "function_call_output"]
    (turn,) = of_type(client, "rejoinder.turn")
    assert [(step["name"], step["status"]) for step in turn["tools"]] == [("get_time", "returned")]
    assert turn["latency_ms"] is not None


def test_a_conversation_that_does_not_ask_gets_none(tools: ServerTools) -> None:
    async def scenario(client: Client) -> None:
        client.language_model.calls = [("get_time", "{}")]
        await one_turn(client)

    client = hold_conversation(scenario, tools)
    (done,) = of_type(client, "response.done")
    assert [item["type"] for item in done["response"]["output"]] == ["message"]


def test_the_tools_are_listed_and_may_be_chosen(tools: ServerTools) -> None:
    async def scenario(client: Client) -> None:
        await ask_for_tools(client, allowed_tools=["dice"])

    client = hold_conversation(scenario, tools)
    check_against_openai([event for event in client.events if not event["type"].startswith("session.")])
    (listed,) = [e["item"] for e in of_type(client, "conversation.item.done")]
    names = [tool["name"] for tool in listed["tools"]]
    assert {"dice", "get_time", "set_timer", "calculate", "write_note"} <= set(names)
    assert [tool.name for tool in client.conversation.session.settings.tools] == ["dice"]


def test_a_clients_own_function_goes_before_the_servers(tools: ServerTools) -> None:
    async def scenario(client: Client) -> None:
        client.language_model.calls = [("get_time", "{}")]
        await client.configure(tools=[OWN, {"type": "function", "name": "get_time"}])
        await asyncio.sleep(0.2)
        await one_turn(client)

    client = hold_conversation(scenario, tools)
    (done,) = of_type(client, "response.done")
    assert [item["type"] for item in done["response"]["output"]] == ["function_call"]


def test_a_server_without_tools_lists_none() -> None:
    async def scenario(client: Client) -> None:
        await ask_for_tools(client)

    client = hold_conversation(scenario)
    (listed,) = [e["item"] for e in of_type(client, "conversation.item.done")]
    assert listed["tools"] == []
    assert not of_type(client, "error")


def test_a_timer_is_announced_to_the_same_token_in_another_conversation(tools: ServerTools) -> None:
    async def first(client: Client) -> None:
        await ask_for_tools(client, authorization="secret-of-the-page")
        client.recognizer.text = "Set a timer for 1 second."
        client.language_model.calls = [("set_timer", '{"seconds": 1}')]
        await one_turn(client)

    client = hold_conversation(first, tools)
    assert "secret-of-the-page" not in str(client.events)

    async def second(client: Client) -> None:
        await asyncio.sleep(1)
        await ask_for_tools(client, authorization="another")
        await asyncio.sleep(2)
        assert not of_type(client, "response.done")
        await ask_for_tools(client, authorization="secret-of-the-page")
        await asyncio.sleep(3)

    time.sleep(1.1)  # the timer runs on the real clock
    client = hold_conversation(second, tools)
    (done,) = of_type(client, "response.done")
    assert "Your timer for 1 second is up." in done["response"]["output"][0]["content"][0]["transcript"]


def test_a_timer_that_is_due_while_the_connection_is_lost_is_announced_when_the_client_comes_back(
    tools: ServerTools,
) -> None:
    async def scenario(client: Client) -> None:
        await ask_for_tools(client, authorization="secret")
        client.recognizer.text = "Set a timer for 1 second."
        client.language_model.calls = [("set_timer", '{"seconds": 1}')]
        await one_turn(client)
        client.conversation.disconnected()
        time.sleep(1.1)  # noqa: ASYNC251  # the timer runs on the real clock
        await asyncio.sleep(5)
        assert len(of_type(client, "response.done")) == 1
        client.conversation.resumed("token")
        await asyncio.sleep(3)

    _, announced = of_type(hold_conversation(scenario, tools), "response.done")
    assert "Your timer for 1 second is up." in announced["response"]["output"][0]["content"][0]["transcript"]


def test_tools_that_use_services_are_there_if_their_endpoints_are(tmp_path: Path) -> None:
    weather = WeatherSettings("http://127.0.0.1:9")
    for settings, expected in (
        (ToolSettings(builtin=False), []),
        (ToolSettings(builtin=False, weather=weather), ["get_weather"]),
        (ToolSettings(builtin=False, search_url="http://127.0.0.1:9"), ["search_web"]),
    ):
        assert list(ServerTools(settings).registry) == expected
    (tmp_path / "mine.py").write_text('def get_weather() -> str:\n    """Mine."""\n    return "mine"\n')
    (own,) = ServerTools(ToolSettings((tmp_path / "mine.py",), builtin=False, weather=weather)).registry.values()
    assert own.declaration.description == "Mine."


SHOP = '''"""Tools."""
from agent.tools import Caller, tool

@tool(read_only=True)
def find_product(name: str) -> dict:
    """The number of a product."""
    return {"number": 17}

@tool(read_only=True)
async def get_price(number: int) -> str:
    """The price of a product, by its number."""
    return f"{3 * number} euros"
'''


class SteppingLanguageModel(FakeLanguageModel):
    """Calls one function after the other, with arguments from the outputs, and then answers with the last output."""

    async def reply(self, ask: Ask) -> AsyncIterator[FakeProgress]:
        outputs = [message.content for message in ask.messages if message.role == "tool"]
        steps = [("find_product", '{"name": "tea"}')]
        if outputs:
            steps.append(("get_price", f'{{"number": {json.loads(outputs[0])["number"]}}}'))
        self.calls = steps[len(outputs) : len(outputs) + 1]
        self.words = [f"It costs {outputs[-1]}."] if outputs else []
        ask = replace(ask, tool_choice="required" if self.calls else "none")
        async for progress in super().reply(ask):
            yield progress


def test_a_turn_takes_several_steps(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    tools = ServerTools(ToolSettings((tmp_path / "shop.py",), builtin=False))

    async def scenario(client: Client) -> None:
        model = SteppingLanguageModel()
        client.conversation.session._planner.language_model = model
        await ask_for_tools(client)
        await one_turn(client)

    client = hold_conversation(scenario, tools)
    (done,) = of_type(client, "response.done")
    assert [item["type"] for item in done["response"]["output"]] == ["mcp_call", "mcp_call", "message"]
    assert done["response"]["output"][2]["content"][0]["transcript"] == "It costs 51 euros."
    (turn,) = of_type(client, "rejoinder.turn")
    assert [step["name"] for step in turn["tools"]] == ["find_product", "get_price"]


def test_out_of_band_responses_have_no_tools(tools: ServerTools) -> None:
    async def scenario(client: Client) -> None:
        await ask_for_tools(client)
        await client.send("response.create", response={"conversation": "none", "output_modalities": ["text"]})
        await asyncio.sleep(1)

    client = hold_conversation(scenario, tools)
    (done,) = of_type(client, "response.done")
    assert [item["type"] for item in done["response"]["output"]] == ["message"]
