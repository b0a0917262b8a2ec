"""MCP servers from a configuration file: real ones, made with the SDK, over stdio and streamable HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

from agent.tools import mcp_servers
from agent.tools.function_tool import Caller, ServerTool
from agent.tools.mcp_servers import McpServerConfig, McpServerConnection, read_mcp_config
from agent.tools.mcp_tool import McpTool
from agent.tools.server_tools import ServerTools, ToolSettings
from tests.agent.tools.mcp_http_server import mcp_server
from tests.real_time import HANG_S, wait_until

STDIO_SERVER = '''
import os
from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations
server = MCPServer("test")

@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("out of paper")

@server.tool()
def leave() -> str:
    """Leave."""
    os._exit(1)

server.run()
'''


HOSTILE_SERVER = '''
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel, Field
server = MCPServer("hostile")

class Word(BaseModel):
    text: str = Field(json_schema_extra={"pattern": "^(a+)+$"})

@server.tool()
def hostile() -> Word:
    """Return what its own pattern takes hours to refuse."""
    return Word(text=40 * "a" + "!")

server.run()
'''


def configured(folder: Path, servers: dict[str, Any]) -> Path:
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


@pytest.fixture
def http_url() -> Iterator[str]:
    server = MCPServer("http")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def multiply(a: int, b: int) -> int:
        """Multiply two numbers."""
        return a * b

    with mcp_server(server) as (url, _):
        yield url


async def test_tools_of_both_kinds_of_servers_are_called(
    tmp_path: Path, http_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "server.py").write_text(STDIO_SERVER)
    servers = {
        "local": {
            "command": sys.executable,
            "args": [str(tmp_path / "server.py")],
            "alwaysAllow": ["fail"],
            "readOnly": ["add"],
            "outgoing": ["a", "query"],
        },
        "remote": {"url": http_url, "type": "http"},
        "broken": {"command": str(tmp_path / "missing")},
        "off": {"command": "never", "disabled": True},
    }
    tools = ServerTools(ToolSettings(mcp_config=configured(tmp_path, servers), builtin=False))
    async with asyncio.timeout(HANG_S), tools.running():
        assert sorted(tools.registry) == ["add", "fail", "leave", "multiply"]
        conversation = tools.local_conversation()
        assert (await conversation.call("add", '{"a": 2, "b": 3}', "")).text == "5"
        assert (await conversation.call("multiply", '{"a": 2, "b": 3}', "")).text == "6"
        assert (await conversation.call("fail", "{}", "")).failed
        traits = {name: conversation.traits(name) for name in ("add", "fail")}
        assert traits["add"] is not None and traits["add"].read_only
        assert traits["fail"] is not None and not traits["fail"].consequential
        assert (traits["add"].outgoing, traits["fail"].outgoing) == (("a",), ())
        assert "outgoing of the MCP server 'local' names query, which none of its tools takes" in caplog.text
    assert not tools.registry


async def test_tools_that_break_the_server_leave_its_connection_to_try_again(
    http_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_servers, "_RETRY_S", (0.01,))
    offered: list[int] = []

    def on_tools(tools: list[ServerTool]) -> None:
        offered.append(len(tools))
        if offered == [1]:
            raise TypeError("a tool that nothing was prepared for")

    connection = McpServerConnection("one", McpServerConfig(url=http_url), on_tools)
    running = asyncio.create_task(connection.run())
    await wait_until(lambda: offered == [1, 0, 1])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_other_tools_ask_the_user_first_whatever_their_server_says_of_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rejoinder.server")
    (tmp_path / "server.py").write_text(STDIO_SERVER)
    servers = {"local": {"command": sys.executable, "args": ["server.py"], "cwd": str(tmp_path)}}
    tools = ServerTools(ToolSettings(mcp_config=configured(tmp_path, servers), builtin=False))
    async with asyncio.timeout(HANG_S), tools.running():
        fail, add = tools.registry["fail"], tools.registry["add"]
        assert add.traits.consequential and not add.traits.read_only
        assert "add, fail, leave of the MCP server 'local' ask the user first" in caplog.text
        assert fail.traits.consequential
        assert (await fail.run({}, Caller("me"))).failed


@pytest.mark.parametrize(
    ("url", "elsewhere"),
    [
        ("https://tools.example.org/mcp", True),
        ("http://192.168.1.5/mcp", True),
        ("http://127.0.0.1:8080/mcp", False),
        ("http://[::1]:8080/mcp", False),
        ("http://localhost/mcp", False),
    ],
)
@pytest.mark.parametrize("outgoing", [None, [], ["query"]])
async def test_the_start_names_servers_elsewhere_whose_arguments_may_hold_anything(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    url: str,
    elsewhere: bool,
    outgoing: list[str] | None,
) -> None:
    async def list_tools(client: object, limit_s: float) -> list[McpTool]:
        return [McpTool("find", input_schema={"type": "object", "properties": {"query": {"type": "string"}}})]

    caplog.set_level(logging.INFO)
    monkeypatch.setattr(mcp_servers.McpClient, "list_tools", list_tools)
    connection = McpServerConnection("notes", McpServerConfig(url=url, outgoing=outgoing), lambda tools: None)
    task = asyncio.create_task(connection.run())
    await asyncio.wait_for(connection.listed.wait(), HANG_S)
    task.cancel()
    named = "arguments for the MCP server 'notes' leave this machine" in caplog.text
    assert named == (elsewhere and outgoing is None)


async def test_a_server_that_dies_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_servers, "_RETRY_S", (0.0,))
    (tmp_path / "server.py").write_text(STDIO_SERVER)
    servers = {"local": {"command": sys.executable, "args": ["server.py"], "cwd": str(tmp_path)}}
    tools = ServerTools(ToolSettings(mcp_config=configured(tmp_path, servers), builtin=False))
    async with asyncio.timeout(HANG_S), tools.running():
        conversation = tools.local_conversation()
        output = await conversation.call("leave", "{}", "")
        assert output.failed and "Connection closed" in output.text
        while "add" in tools.registry:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        while "add" not in tools.registry:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert (await tools.local_conversation().call("add", '{"a": 2, "b": 3}', "")).text == "5"


def test_variables_of_the_environment_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    path = configured(tmp_path, {"a": {"url": "https://a.example", "headers": {"X": "Bearer ${TOKEN} ${NONE:-none}"}}})
    assert read_mcp_config(path) == {"a": McpServerConfig(url="https://a.example", headers={"X": "Bearer secret none"})}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{\n  oops", "line 2: Expecting property name"),
        ("{}", "mcpServers: Field required"),
        ('{"mcpServers": {"a": {}}}', "mcpServers.a: give either a command or a url"),
        ('{"mcpServers": {"a": {"url": "ftp://x"}}}', "a url begins with https://"),
        ('{"mcpServers": {"a": {"command": "x", "args": "y"}}}', r"mcpServers\.a\.args: Input should be a valid list"),
        ('{"mcpServers": {"a": {"command": "${NO_SUCH_VARIABLE}"}}}', "NO_SUCH_VARIABLE is not set"),
    ],
)
def test_an_error_of_the_file_names_the_place(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_mcp_config(path)


async def test_a_pattern_of_a_servers_schema_is_never_run(tmp_path: Path) -> None:
    path = configured(tmp_path, {"math": {"command": sys.executable, "args": ["-c", HOSTILE_SERVER]}})
    tools = ServerTools(ToolSettings(mcp_config=path, builtin=False))
    async with asyncio.timeout(HANG_S), tools.running():
        output = await tools.local_conversation().call("hostile", "{}", "")
        assert "aaa!" in output.text
