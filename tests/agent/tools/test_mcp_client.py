"""The client of MCP servers: against a small server that answers with JSON or events, and against misbehaving ones."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx2 as httpx
import pytest

from agent.matched_text import MAX_ERROR
from agent.tools import mcp_client
from agent.tools.mcp_client import McpClient
from agent.tools.mcp_tool import McpError

TOOLS = [
    {"name": "add", "description": "Adds", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "fail", "inputSchema": {"type": "object", "properties": {}}},
]


class Server:
    """An MCP server that answers in one of the two ways and insists on its session. Records the methods."""

    def __init__(self, *, events: bool) -> None:
        self.events = events
        self.methods: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":  # a stream of notifications, which it does not have
            return httpx.Response(405)
        if request.method == "DELETE":  # the end of the session
            self.methods.append("DELETE")
            return httpx.Response(200)
        message = json.loads(request.content)
        self.methods.append(message["method"])
        if message["method"] == "initialize":
            assert message["params"]["clientInfo"]["name"] == "rejoinder"
            server = {"capabilities": {"tools": {}}, "serverInfo": {"name": "test", "version": "1"}}
            return self.answer(message, {"protocolVersion": "2025-03-26", **server}, {"Mcp-Session-Id": "s1"})
        if request.headers.get("mcp-session-id") != "s1" or request.headers["mcp-protocol-version"] != "2025-03-26":
            return httpx.Response(400)
        match message["method"], message.get("params", {}):
            case "notifications/initialized", _:
                return httpx.Response(202)
            case "tools/list", {"cursor": "2"}:
                return self.answer(message, {"tools": TOOLS[1:]})
            case "tools/list", _:
                return self.answer(message, {"tools": TOOLS[:1], "nextCursor": "2"})
            case "tools/call", {"name": "add", "arguments": {"a": a, "b": b}}:
                return self.answer(message, {"content": [{"type": "text", "text": str(a + b)}]})
            case "tools/call", {"name": "fail"}:
                return self.answer(message, {"content": [{"type": "text", "text": "out of paper"}], "isError": True})
            case "tools/call", {"name": "structured"}:
                return self.answer(message, {"content": [], "structuredContent": {"sum": 3}})
            case "tools/call", {"name": "long"}:
                return self.answer(message, {"content": [{"type": "text", "text": "x" * 100_000}]})
        error = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32602, "message": "unknown tool"}}
        return httpx.Response(200, json=error)

    def answer(self, message: Any, result: Any, headers: dict[str, str] | None = None) -> httpx.Response:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        if not self.events:
            return httpx.Response(200, json=answer, headers=headers)
        progress = {"jsonrpc": "2.0", "method": "notifications/progress"}
        body = "".join(f"event: message\r\ndata: {json.dumps(one)}\r\n\r\n" for one in (progress, answer))
        return httpx.Response(200, text=body, headers={"content-type": "text/event-stream", **(headers or {})})


def client_of(server: Any) -> McpClient:
    return McpClient("http://mcp.example/", transport=httpx.MockTransport(server))


@pytest.mark.parametrize("events", [False, True])
async def test_tools_are_listed_and_called(events: bool) -> None:
    server = Server(events=events)
    client = client_of(server)
    add, fail = await client.list_tools()
    assert (add.name, add.description, add.read_only) == ("add", "Adds", True)
    assert (fail.name, fail.input_schema, fail.read_only) == ("fail", {"type": "object", "properties": {}}, False)
    assert await client.call_tool("add", {"a": 1, "b": 2}) == "3"
    assert await client.call_tool("structured", {}) == '{"sum": 3}'
    assert len(await client.call_tool("long", {})) < 10_000
    assert server.methods[0] == "server/discover"  # of a newer revision than the server's
    assert server.methods[1:5] == ["initialize", "notifications/initialized", "tools/list", "tools/list"]
    await client.close()
    assert server.methods[-1] == "DELETE"


@pytest.mark.parametrize(
    ("tool", "kind", "message"),
    [("fail", "tool_execution_error", "out of paper"), ("unknown", "protocol_error", "unknown tool")],
)
async def test_a_failed_call_says_why(tool: str, kind: str, message: str) -> None:
    with pytest.raises(McpError, match=message) as raised:
        await client_of(Server(events=False)).call_tool(tool, {})
    assert raised.value.kind == kind


JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}
LARGE = b"x" * (2 << 20)


def unreachable(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("no route")


@pytest.mark.parametrize(
    ("server", "kind", "message"),
    [
        (unreachable, "http_error", "no route"),
        (lambda request: httpx.Response(500), "http_error", "HTTP status 500"),
        (lambda request: httpx.Response(302, headers={"location": "http://evil.example"}), "http_error", "302"),
        (lambda request: httpx.Response(401, json={"error": "invalid_token"}), "http_error", "HTTP status 401"),
        (lambda request: httpx.Response(200, text="{", headers=JSON), "protocol_error", "not JSON"),
        (lambda request: httpx.Response(200, text="<html>"), "protocol_error", "Unexpected content type: text/plain"),
        (lambda request: httpx.Response(200, json=[1]), "protocol_error", "did not answer"),
        (lambda request: httpx.Response(200, content=LARGE), "protocol_error", "more than"),
        (
            lambda request: httpx.Response(200, content=gzip.compress(LARGE), headers={"content-encoding": "gzip"}),
            "protocol_error",
            "the answer is compressed",
        ),
        (
            lambda request: httpx.Response(
                200, content=gzip.compress(b"data: " + LARGE), headers={**EVENTS, "content-encoding": "gzip"}
            ),
            "protocol_error",
            "the answer is compressed",
        ),
        (lambda request: httpx.Response(200, content=b"data: " + LARGE, headers=EVENTS), "http_error", "exceeded"),
    ],
)
async def test_a_server_that_misbehaves_is_an_error(server: Any, kind: str, message: str) -> None:
    with pytest.raises(McpError, match=message) as raised:
        await client_of(server).list_tools()
    assert raised.value.kind == kind


@pytest.mark.parametrize("status", [301, 307])
async def test_a_redirect_to_another_host_is_not_followed(status: int) -> None:
    asked: list[str] = []

    def server(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(status, headers={"location": "http://evil.example/"})

    with pytest.raises(McpError, match=r"not followed|HTTP status 301"):
        await client_of(server).list_tools()
    assert set(asked) == {"mcp.example"}


async def test_an_answer_without_what_the_protocol_requires_is_an_error() -> None:
    class Careless(Server):
        def answer(self, message: Any, result: Any, headers: dict[str, str] | None = None) -> httpx.Response:
            tools = [{"name": tool["name"]} for tool in result.pop("tools", ())]
            return super().answer(message, {**result, "tools": tools}, headers)

    with pytest.raises(McpError, match=r"tools\.0\.inputSchema: Field required"):
        await client_of(Careless(events=False)).list_tools()


@pytest.mark.parametrize("schema", [{"enum": 5}, {"properties": [1]}])
async def test_a_tool_whose_schema_is_none_is_left_out(schema: Any) -> None:
    """It would fail every response of a conversation whose tools are selected."""

    class Careless(Server):
        def answer(self, message: Any, result: Any, headers: Any = None) -> httpx.Response:
            if result.get("tools", [{}])[0].get("name") == "add":
                bad = {"type": "object", "properties": {"a": schema}}
                result = {**result, "tools": [{**result["tools"][0], "inputSchema": bad}]}
            return super().answer(message, result, headers)

    assert [tool.name for tool in await client_of(Careless(events=False)).list_tools()] == ["fail"]


async def test_the_number_of_tools_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_client, "MAX_TOOLS", 1)
    assert [tool.name for tool in await client_of(Server(events=False)).list_tools()] == ["add"]


async def test_pages_are_read_until_they_are_too_much_together() -> None:
    class Verbose(Server):
        def answer(self, message: Any, result: Any, headers: Any = None) -> httpx.Response:
            if message["method"] == "tools/list":
                tool = {**TOOLS[0], "description": "x" * (mcp_client.MAX_RESPONSE_BYTES // 3)}
                result = {"tools": [tool], "nextCursor": "more"}
            return super().answer(message, result, headers)

    server = Verbose(events=False)
    with pytest.raises(McpError, match="the list of tools has more than 1048576 bytes"):
        await client_of(server).list_tools()
    assert server.methods.count("tools/list") == 3


@pytest.mark.parametrize("tool", ["fail", "unknown"])
async def test_what_a_server_says_of_a_failure_is_cut(tool: str) -> None:
    class Talkative(Server):
        def __call__(self, request: httpx.Request) -> httpx.Response:
            if b'"tools/call"' not in request.content:
                return super().__call__(request)
            message, words = json.loads(request.content), "failure " + "and so on\n" * 10_000
            if tool == "fail":
                return self.answer(message, {"content": [{"type": "text", "text": words}], "isError": True})
            error = {"code": -32602, "message": words}
            return httpx.Response(200, json={"jsonrpc": "2.0", "id": message["id"], "error": error})

    with pytest.raises(McpError) as raised:
        await client_of(Talkative(events=False)).call_tool(tool, {})
    assert str(raised.value).startswith("failure and so on and") and len(str(raised.value)) <= MAX_ERROR


async def test_a_closed_client_connects_no_more() -> None:
    server = Server(events=False)
    client = client_of(server)
    await client.list_tools()
    await client.close()
    asked = len(server.methods)
    with pytest.raises(McpError, match="the server is no longer in use"):
        await client.call_tool("add", {"a": 1, "b": 2})
    assert len(server.methods) == asked


async def test_a_server_whose_empty_pages_never_end_has_no_tools() -> None:
    class Endless(Server):
        def answer(self, message: Any, result: Any, headers: Any = None) -> httpx.Response:
            if message["method"] == "tools/list":
                assert self.methods.count("tools/list") <= mcp_client.MAX_TOOLS
                result = {"tools": [], "nextCursor": "more"}
            return super().answer(message, result, headers)

    assert await client_of(Endless(events=False)).list_tools() == []
