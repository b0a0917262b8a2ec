"""A response has the tools that the client asked for before it, however soon after the `session.update` it starts."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.tools.server_tools import ServerTools, ToolSettings
from chat.types import Tool
from server.mcp_access import OWN_URL
from server.realtime.configuration import default_config, updated_config
from server.realtime.mcp_tools import MAX_LISTING_WAIT_S
from tests.fakes import FakeLanguageModel
from tests.server.live_server import connected, receive, serving
from tests.server.realtime.conversation_client import Client, hold_conversation
from tests.server.realtime.test_mcp_tools import SERVER, McpConversation, converse, of_type
from tests.server.realtime.test_response_writer import WEATHER
from voice.audio.codec import to_pcm16

OWN = {"type": "mcp", "server_label": "rejoinder", "server_url": OWN_URL}
QUESTION = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Roll a die."}]}
SLOW_S = 60.0

Scenario = Callable[[Client], Coroutine[Any, Any, None]]


@pytest.fixture
def tools(tmp_path: Path) -> ServerTools:
    (tmp_path / "dice.py").write_text('def dice(sides: int) -> str:\n    """Roll a die."""\n    return "six"\n')
    return ServerTools(ToolSettings((tmp_path / "dice.py",), builtin=False))


@pytest.fixture
def slow_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schemas take time to check, as those of a real language model do."""

    def check_tools(model: FakeLanguageModel, tools: Sequence[Tool]) -> None:
        time.sleep(0.05)

    monkeypatch.setattr(FakeLanguageModel, "check_tools", check_tools)


@pytest.fixture
def inline_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a virtual clock, a limit of time must not wait for a thread."""

    async def to_thread(function: Any, *args: Any) -> Any:
        return function(*args)

    monkeypatch.setattr(asyncio, "to_thread", to_thread)


def offered(client: Client) -> list[list[str]]:
    """The tools that each response had."""
    return [[tool.name for tool in ask.tools] for ask in client.language_model.asked]


async def ask_at_once(client: Client) -> None:
    await client.configure(tools=[OWN])
    await client.send("response.create")


async def ask_after_a_message(client: Client) -> None:
    await client.configure(tools=[OWN])
    await client.send("conversation.item.create", item=QUESTION)
    await client.send("response.create")


async def speak_at_once(client: Client) -> None:
    await client.configure(tools=[OWN], audio={"input": {"turn_detection": {"type": "server_vad"}}})
    for seconds, loudness in ((1.0, 0.5), (3.0, 0.0)):  # faster than it is spoken
        pcm = to_pcm16(np.full(int(24_000 * seconds), loudness, np.float32))
        await client.send("input_audio_buffer.append", audio=base64.b64encode(pcm).decode())


@pytest.mark.usefixtures("slow_checks")
@pytest.mark.parametrize("scenario", [ask_at_once, ask_after_a_message, speak_at_once])
def test_a_response_right_after_an_update_has_the_servers_tools(tools: ServerTools, scenario: Scenario) -> None:
    async def then_wait(client: Client) -> None:
        await scenario(client)
        await asyncio.sleep(3)

    client = hold_conversation(then_wait, tools)
    assert offered(client) == [["dice"]]
    types = client.types()
    assert types.index("session.updated") < types.index("mcp_list_tools.completed") < types.index("response.created")


@pytest.mark.usefixtures("slow_checks")
def test_a_session_that_starts_with_the_servers_tools_has_them_in_its_first_response(tools: ServerTools) -> None:
    async def scenario(client: Client) -> None:
        await client.send("response.create")
        await asyncio.sleep(3)

    config = updated_config(default_config("tiny", "fake"), {"tools": [OWN]})
    assert offered(hold_conversation(scenario, tools, config=config)) == [["dice"]]


@pytest.mark.usefixtures("slow_checks")
def test_a_response_right_after_the_tools_are_taken_back_has_none(tools: ServerTools) -> None:
    async def scenario(client: Client) -> None:
        await client.configure(tools=[OWN])
        await client.configure(tools=[])
        await client.send("response.create")
        await asyncio.sleep(3)

    assert offered(hold_conversation(scenario, tools)) == [[]]


@pytest.mark.usefixtures("slow_checks")
async def test_both_events_may_be_sent_at_once_over_a_socket(tools: ServerTools) -> None:
    def new_language_model() -> FakeLanguageModel:
        return FakeLanguageModel(calls=[("dice", '{"sides": 6}')])

    with serving(new_language_model=new_language_model, tools=tools) as address:
        async with connected(address) as client:
            await client.send(json.dumps({"type": "session.update", "session": {"type": "realtime", "tools": [OWN]}}))
            await client.send(json.dumps({"type": "conversation.item.create", "item": QUESTION}))
            await client.send(json.dumps({"type": "response.create"}))
            output = (await receive(client, "response.done"))["response"]["output"]
    assert [item["type"] for item in output] == ["mcp_call", "message"]


@pytest.mark.usefixtures("inline_threads")
@pytest.mark.parametrize("conversation", ["auto", "none"])
def test_a_response_waits_for_another_server_to_list_its_tools(conversation: str) -> None:
    async def scenario(client: McpConversation) -> None:
        await client.configure(tools=[SERVER])
        response = {"conversation": conversation, "tool_choice": {"type": "mcp", "server_label": "house"}}
        await client.send("response.create", response=response)
        await asyncio.sleep(3)

    client = converse(scenario)
    assert offered(client)[0] == ["switch_lights", "read_meter"]
    assert client.language_model.choices[0] == "required"
    assert [call[0] for call in client.servers[0].calls] == ["switch_lights"]


@pytest.mark.usefixtures("inline_threads")
def test_a_response_does_not_wait_long_for_a_slow_server_and_a_later_one_has_its_tools() -> None:
    async def scenario(client: McpConversation) -> None:
        client.language_model.calls = []
        await client.configure(tools=[SERVER, WEATHER])
        client.servers[0].seconds = SLOW_S
        await client.send("response.create")
        await asyncio.sleep(MAX_LISTING_WAIT_S - 0.1)
        assert not client.language_model.asked
        await asyncio.sleep(0.2)
        assert offered(client) == [["get_weather"]]
        assert "mcp_list_tools.completed" not in client.types()
        await asyncio.sleep(SLOW_S)
        assert "mcp_list_tools.completed" in client.types()
        await client.send("response.create")
        await asyncio.sleep(1)

    assert offered(converse(scenario))[-1] == ["switch_lights", "read_meter", "get_weather"]


@pytest.mark.usefixtures("inline_threads")
def test_a_response_that_waits_for_a_slow_server_can_be_cancelled() -> None:
    async def scenario(client: McpConversation) -> None:
        await client.configure(tools=[SERVER])
        client.servers[0].seconds = SLOW_S
        await client.send("response.create")
        await client.send("response.cancel")
        await asyncio.sleep(3)

    client = converse(scenario)
    assert client.last("response.done")["response"]["status"] == "cancelled"
    assert not client.language_model.asked


@pytest.mark.usefixtures("inline_threads")
def test_audio_is_heard_while_a_response_waits_for_a_slow_server() -> None:
    async def scenario(client: McpConversation) -> None:
        client.language_model.calls = []
        await client.configure(tools=[SERVER])
        client.servers[0].seconds = SLOW_S
        await client.send("response.create")
        started_at = asyncio.get_running_loop().time()
        await client.speak(1.0, 0.5)
        assert asyncio.get_running_loop().time() - started_at == pytest.approx(1.0)
        assert client.last("input_audio_buffer.speech_started")
        await client.speak(3.0, 0.0)

    client = converse(scenario)
    assert [done["response"]["status"] for done in of_type(client, "response.done")] == ["cancelled", "completed"]
    assert offered(client)[-1] == []


@pytest.mark.usefixtures("inline_threads")
def test_a_response_does_not_get_tools_that_a_later_update_takes_back() -> None:
    async def scenario(client: McpConversation) -> None:
        client.language_model.calls = []
        await client.configure(tools=[SERVER])
        await client.send("response.create")
        await client.configure(tools=[])
        await asyncio.sleep(3)

    assert offered(converse(scenario)) == [[]]
