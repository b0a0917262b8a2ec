"""Tools of MCP servers in a conversation: listing, approval, calls, failures, and the operator's allow-list."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from agent.tools.mcp_tool import McpError, McpTool
from server.budgets import Budget
from server.realtime import mcp_tools
from server.realtime.mcp_tools import NOT_APPROVED
from tests.agent.tools.mcp_http_server import mcp_server
from tests.fakes import FakeLanguageModel
from tests.real_time import wait_until
from tests.server.live_server import connected, receive, serving
from tests.server.realtime.conversation_client import Client, check_against_openai, hold_conversation, one_turn

URL = "https://tools.example/mcp"
SERVER = {"type": "mcp", "server_label": "house", "server_url": URL, "require_approval": "never"}
LIGHTS = McpTool("switch_lights", "Switch the lights", {"type": "object", "properties": {"on": {"type": "boolean"}}})
READ = McpTool("read_meter", "Read the meter", annotations={"readOnlyHint": True})


class FakeMcpClient:
    """An MCP server with two tools. Records the calls."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.url, self.headers, self.closed = url, headers, False
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.error: McpError | None = None
        self.seconds = 0.1

    async def list_tools(self) -> list[McpTool]:
        await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return [LIGHTS, READ, McpTool("broken", input_schema={"type": "array"})]

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> str:
        self.calls.append((name, arguments))
        await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return "The lights are on."

    async def close(self) -> None:
        self.closed = True


class McpConversation(Client):
    """A client of a server whose operator allows `URL`."""

    def __init__(self) -> None:
        super().__init__()
        self.servers: list[FakeMcpClient] = []

        def connect(url: str, headers: Mapping[str, str]) -> FakeMcpClient:
            self.servers.append(FakeMcpClient(url, headers))
            return self.servers[-1]

        mcp = self.conversation._mcp
        mcp._allowed_urls, mcp._new_client = [URL], connect  # type: ignore[assignment]
        self.language_model.calls = [("switch_lights", '{"on": true}')]


def converse(scenario: Any) -> McpConversation:
    conversation: list[McpConversation] = []

    async def with_mcp(client: Client) -> None:
        conversation.append(McpConversation())
        await scenario(conversation[0])
        await conversation[0].conversation.close()

    hold_conversation(with_mcp)
    check_against_openai(conversation[0].events)
    return conversation[0]


def of_type(client: Client, type: str) -> list[dict[str, Any]]:
    return [event for event in client.events if event["type"] == type]


async def connect(client: Client, **settings: Any) -> None:
    await client.configure(tools=[{**SERVER, **settings}])
    while not {"mcp_list_tools.completed", "error"} & set(client.types()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)  # the schemas are checked in a thread, which knows nothing of the virtual clock


def test_a_call_is_made_by_the_server_and_its_output_is_spoken() -> None:
    async def scenario(client: McpConversation) -> None:
        await connect(client, authorization="token")
        await one_turn(client)
        await client.send("response.create")
        await asyncio.sleep(3)

    client = converse(scenario)
    types = client.types()
    assert types.index("mcp_list_tools.in_progress") < types.index("mcp_list_tools.completed")
    items = [event["item"] for event in of_type(client, "conversation.item.done")]
    listed = next(item for item in items if item["type"] == "mcp_list_tools")
    assert [tool["name"] for tool in listed["tools"]] == ["switch_lights", "read_meter", "broken"]
    assert "authorization" not in client.last("session.updated")["session"]["tools"][0]
    order = [kind for kind in types if kind.startswith("response.") and "audio" not in kind and "part" not in kind]
    assert order == [
        "response.created",
        "response.output_item.added",
        "response.mcp_call_arguments.delta",
        "response.mcp_call_arguments.done",
        "response.output_item.done",
        "response.mcp_call.in_progress",
        "response.done",
        "response.mcp_call.completed",
        "response.created",
        "response.output_item.added",
        "response.output_item.done",
        "response.done",
    ]
    known: set[str | None] = {None}
    for added in of_type(client, "conversation.item.added"):
        assert added["previous_item_id"] in known
        known.add(added["item"]["id"])
    done = [e["item"] for e in of_type(client, "conversation.item.done") if e["item"]["type"] == "mcp_call"]
    assert [(item["output"], item["error"]) for item in done] == [("The lights are on.", None)]
    server = client.servers[0]
    assert (server.headers, server.calls) == ({"Authorization": "Bearer token"}, [("switch_lights", {"on": True})])
    assert server.closed
    prompt = client.language_model.prompts[-1]
    assert [message.role for message in prompt] == ["system", "user", "assistant", "tool"]
    assert prompt[-1].content == "The lights are on."


@pytest.mark.parametrize("approve", [True, False])
def test_a_call_that_needs_approval_waits_for_it(approve: bool) -> None:
    async def scenario(client: McpConversation) -> None:
        await connect(client, require_approval="always")
        await one_turn(client)
        assert not client.servers[0].calls
        request = client.last("response.output_item.done")["item"]
        assert (request["type"], request["arguments"]) == ("mcp_approval_request", '{"on": true}')
        answer = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve}
        await client.send("conversation.item.create", item=answer)
        await asyncio.sleep(1)
        await client.send("conversation.item.create", item=answer, event_id="again")
        assert client.error["event_id"] == "again"
        await client.send("response.create")
        await asyncio.sleep(3)

    client = converse(scenario)
    assert len(client.servers[0].calls) == approve
    assert client.language_model.prompts[-1][-1].content == ("The lights are on." if approve else NOT_APPROVED)
    calls = [e["item"] for e in of_type(client, "conversation.item.done") if e["item"]["type"] == "mcp_call"]
    assert len(calls) == approve
    if approve:
        assert (
            calls[0]["approval_request_id"] == client.last("conversation.item.done")["item"]["id"] or calls[0]["output"]
        )


def test_a_request_for_approval_that_was_cancelled_cannot_be_approved() -> None:
    async def scenario(client: McpConversation) -> None:
        await connect(client, require_approval="always")
        client.language_model.seconds_per_word = 0.1
        await client.send("response.create", response={"tool_choice": "required"})
        await asyncio.sleep(0.25)
        await client.send("response.cancel")
        await asyncio.sleep(0.5)
        request = client.last("response.output_item.done")["item"]
        assert request["type"] == "mcp_approval_request" and request["arguments"] in '{"on": true'
        answer = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
        await client.send("conversation.item.create", item=answer)
        assert client.error["param"] == "item.approval_request_id"
        await asyncio.sleep(1)
        assert not client.servers[0].calls

    converse(scenario)


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("approval", ["never", "always"])
def test_a_call_of_an_out_of_band_response_leaves_no_trace_in_the_conversation(approval: str, fails: bool) -> None:
    async def scenario(client: McpConversation) -> None:
        await connect(client, require_approval=approval)
        if fails:
            client.servers[0].error = McpError("http_error", "HTTP status 500", 500)
        listed = len(client.events)
        await client.send("response.create", response={"conversation": "none", "tool_choice": "required"})
        await asyncio.sleep(1)
        if approval == "always":
            request = client.last("response.output_item.done")["item"]
            answer = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
            await client.send("conversation.item.create", item=answer)
            await asyncio.sleep(1)
        items = [event["item"]["type"] for event in client.events[listed:] if event["type"].startswith("conversation.")]
        assert set(items) <= {"mcp_approval_response"}
        assert client.conversation.session.history.items == ()
        ended = client.last("response.mcp_call.failed" if fails else "response.mcp_call.completed")
        await client.send("conversation.item.retrieve", item_id=ended["item_id"])
        call = client.last("conversation.item.retrieved")["item"]
        assert (call["output"], call["error"] is None) == (None if fails else "The lights are on.", not fails)

    converse(scenario)


@pytest.mark.parametrize(
    ("answer", "listed"),
    [
        (None, ["message", "mcp_call"]),
        (True, ["message", "mcp_approval_request", "mcp_approval_response", "mcp_call"]),
        (False, ["message", "mcp_approval_request", "mcp_approval_response"]),
    ],
)
def test_a_client_that_comes_back_gets_calls_as_it_knows_them(answer: bool | None, listed: list[str]) -> None:
    async def scenario(client: McpConversation) -> None:
        await connect(client, require_approval="never" if answer is None else "always")
        await one_turn(client)
        if answer is not None:
            request = client.last("response.output_item.done")["item"]
            approval = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": answer}
            await client.send("conversation.item.create", item=approval)
            await asyncio.sleep(1)
        client.conversation.resumed("token")
        items = client.last("rejoinder.resumed")["items"]
        assert [item["type"] for item in items] == listed
        for item in items:
            await client.send("conversation.item.retrieve", item_id=item["id"])
            assert client.last("conversation.item.retrieved")["item"] == item
        if answer is not False:
            assert items[-1]["output"] == "The lights are on."

    converse(scenario)


@pytest.mark.parametrize(
    ("setting", "asked"),
    [
        (None, True),
        ("always", True),
        ("never", False),
        ({"never": {"tool_names": ["switch_lights"]}}, False),
        ({"always": {"tool_names": ["switch_lights"]}, "never": {"tool_names": ["switch_lights"]}}, True),
        ({"never": {"read_only": True}}, True),
    ],
)
def test_who_must_approve_is_the_clients_choice(setting: Any, asked: bool) -> None:
    async def scenario(client: McpConversation) -> None:
        await connect(client, require_approval=setting)
        await one_turn(client)

    client = converse(scenario)
    kind = client.last("response.output_item.done")["item"]["type"]
    assert kind == ("mcp_approval_request" if asked else "mcp_call")


@pytest.mark.parametrize(
    ("setting", "asked"),
    [
        ({"never": {"read_only": True}}, True),
        ({"never": {"read_only": True, "tool_names": ["read_meter"]}}, True),
        ({"never": {"tool_names": ["read_meter"]}}, False),
        ({"always": {"read_only": False}, "never": {"tool_names": ["read_meter"]}}, True),
    ],
)
def test_what_a_server_says_of_its_own_tools_replaces_no_approval(setting: Any, asked: bool) -> None:
    async def scenario(client: McpConversation) -> None:
        client.language_model.calls = [("read_meter", "{}")]
        await connect(client, require_approval=setting)
        await one_turn(client)

    kind = converse(scenario).last("response.output_item.done")["item"]["type"]
    assert kind == ("mcp_approval_request" if asked else "mcp_call")


def test_the_operators_list_of_tools_holds_for_the_servers_of_clients() -> None:
    async def scenario(client: McpConversation) -> None:
        client.conversation._mcp._allowed_tools = frozenset({"read_meter"})
        await connect(client)
        await one_turn(client)

    client = converse(scenario)
    assert [tool.name for tools in client.conversation._mcp.tools().values() for tool in tools] == ["read_meter"]
    (listed,) = [event["item"] for event in of_type(client, "conversation.item.done") if "tools" in event["item"]]
    assert [tool["name"] for tool in listed["tools"]] == ["read_meter"]
    assert not client.servers[0].calls


def test_lists_of_tools_that_are_too_much_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_tools, "TOOL_LISTS", Budget(6000, 60.0))

    async def scenario(client: McpConversation) -> None:
        async def configure(*labels: str) -> None:
            await client.configure(tools=[{**SERVER, "server_label": label} for label in labels])
            await asyncio.gather(*(server.listing for server in client.conversation._mcp._servers.values()))

        await configure("house", "garden")
        (failed,) = of_type(client, "mcp_list_tools.failed")
        refused = client.conversation._mcp.other_item(failed["item_id"]) or {}
        assert (refused["tools"], refused["error"]) == ([], "all lists together have more than 5 KiB")
        assert [server.closed for server in client.servers] == [False, True]
        assert len(of_type(client, "mcp_list_tools.completed")) == 1
        await configure("shed")
        assert len(of_type(client, "mcp_list_tools.completed")) == 2  # there is room again

    converse(scenario)


def test_the_newest_calls_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_tools, "_MAX_CALLS", 1)

    async def scenario(client: McpConversation) -> None:
        await connect(client)
        for _ in range(2):
            await one_turn(client)

    mcp = converse(scenario).conversation._mcp
    assert len(mcp._calls) == 1


@pytest.mark.parametrize(
    ("allowed", "names"),
    [
        (None, ["switch_lights", "read_meter"]),
        (["read_meter"], ["read_meter"]),
        ({"read_only": True}, ["read_meter"]),
        ({"tool_names": ["switch_lights"], "read_only": False}, ["switch_lights"]),
    ],
)
def test_only_the_allowed_tools_are_offered(allowed: Any, names: Sequence[str]) -> None:
    async def scenario(client: McpConversation) -> None:
        await connect(client, allowed_tools=allowed)

    client = converse(scenario)
    assert [tool.name for tool in client.conversation.session.settings.tools] == names


def test_a_failed_call_is_reported_and_the_conversation_goes_on() -> None:
    async def scenario(client: McpConversation) -> None:
        await connect(client)
        client.servers[0].error = McpError("http_error", "HTTP status 500", 500)
        await one_turn(client)
        await client.send("response.create")
        await asyncio.sleep(3)

    client = converse(scenario)
    assert of_type(client, "response.mcp_call.failed")
    call = next(e["item"] for e in of_type(client, "conversation.item.done") if e["item"]["type"] == "mcp_call")
    assert call["error"] == {"type": "http_error", "message": "HTTP status 500", "code": 500}
    assert client.language_model.prompts[-1][-1].content == "The call failed: HTTP status 500"
    assert client.last("response.done")["response"]["status"] == "completed"


def test_a_slow_call_does_not_block_the_conversation_and_survives_an_interruption() -> None:
    async def scenario(client: McpConversation) -> None:
        await connect(client)
        client.servers[0].seconds = 6.0
        await one_turn(client)
        client.language_model.calls = []
        await one_turn(client)
        await client.speak(1.0, 0.5)
        await client.speak(3.0, 0.0)

    client = converse(scenario)
    assert len(of_type(client, "response.mcp_call.completed")) == 1
    assert "The lights are on." in [message.content for message in client.language_model.prompts[-1]]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"server_url": "https://evil.example/mcp"}, "server_url"),
        ({"server_url": None}, "server_url"),
        ({"connector_id": "connector_gmail"}, "connector_id"),
    ],
)
def test_only_servers_that_the_operator_allows_are_contacted(change: dict[str, Any], field: str) -> None:
    async def scenario(client: McpConversation) -> None:
        await connect(client, **change)
        assert (client.error["code"], client.error["param"]) == ("mcp_server_not_allowed", f"session.tools.0.{field}")
        assert not client.servers

    converse(scenario)


def test_a_server_that_cannot_be_listed_is_reported() -> None:
    async def scenario(client: McpConversation) -> None:
        await client.configure(tools=[SERVER])
        client.servers[0].error = McpError("http_error", "HTTP status 401", 401)
        await asyncio.sleep(1)
        await one_turn(client)

    client = converse(scenario)
    (failed,) = of_type(client, "mcp_list_tools.failed")
    done = [event["item"] for event in of_type(client, "conversation.item.done")]
    assert [item["error"] for item in done if item["id"] == failed["item_id"]] == ["HTTP status 401"]
    assert client.servers[0].closed
    assert client.last("response.done")["response"]["output"][0]["type"] == "message"


def test_a_response_may_be_required_to_call_a_server() -> None:
    async def scenario(client: McpConversation) -> None:
        await connect(client)
        await client.send("response.create", response={"tool_choice": {"type": "mcp", "server_label": "house"}})
        await asyncio.sleep(3)
        await client.send("response.create", response={"tool_choice": {"type": "mcp", "server_label": "garden"}})
        assert client.error["param"] == "response.tool_choice.server_label"

    assert converse(scenario).language_model.choices == ["required"]


def house(made: list[bool]) -> MCPServer:
    """A real server with one tool, which records its calls."""
    server = MCPServer("house")

    @server.tool()
    def switch_lights(on: bool) -> str:
        """Switch the lights."""
        made.append(on)
        return "The lights are on."

    return server


async def set_tools(client: Any, *tools: dict[str, Any]) -> None:
    await client.send(json.dumps({"type": "session.update", "session": {"type": "realtime", "tools": tools}}))


async def test_a_refused_list_closes_its_connection_and_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(mcp_tools, "TOOL_LISTS", Budget(1000, 60.0))
    with mcp_server(house([])) as (url, running), serving(mcp_servers=[url]) as address:
        async with connected(address) as client:
            await set_tools(client, {**SERVER, "server_url": url})
            item = (await receive(client, "conversation.item.done"))["item"]
            assert (item["type"], item["tools"]) == ("mcp_list_tools", [])
            assert item["error"] == "all lists together have more than 0 KiB"
            assert (await receive(client, "mcp_list_tools.failed"))["item_id"] == item["id"]
            await wait_until(lambda: not running.server_state.connections)
    assert "the tools of the MCP server 'house' cannot be listed: all lists together" in caplog.text


async def test_a_call_is_not_made_once_the_session_no_longer_names_its_server() -> None:
    made: list[bool] = []
    model = FakeLanguageModel(calls=[("switch_lights", '{"on": true}')])
    question = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Lights on, please."}]}
    with mcp_server(house(made)) as (url, running), serving(None, lambda: model, mcp_servers=[url]) as address:
        async with connected(address) as client:
            await set_tools(client, {**SERVER, "server_url": url, "require_approval": "always"})
            await receive(client, "mcp_list_tools.completed")
            await client.send(json.dumps({"type": "conversation.item.create", "item": question}))
            await client.send(json.dumps({"type": "response.create"}))
            output = (await receive(client, "response.done"))["response"]["output"]
            request = next(item for item in output if item["type"] == "mcp_approval_request")
            await set_tools(client)
            await wait_until(lambda: not running.server_state.connections)
            answer = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
            await client.send(json.dumps({"type": "conversation.item.create", "item": answer}))
            await receive(client, "response.mcp_call.failed")
            call = (await receive(client, "conversation.item.done"))["item"]
            assert (call["type"], call["output"]) == ("mcp_call", None)
            assert "the server is no longer in use" in call["error"]["message"]
            assert not running.server_state.connections and not made


def test_a_call_that_waits_for_approval_keeps_no_credentials_of_a_server_that_is_gone() -> None:
    async def scenario(client: McpConversation) -> None:
        await connect(client, require_approval="always", authorization="token", headers={"X-House": "token"})
        await one_turn(client)
        await client.configure(tools=[])

    mcp = converse(scenario).conversation._mcp
    (call,) = mcp._calls.values()
    assert (call.server.config.authorization, call.server.config.headers) == (None, None)
