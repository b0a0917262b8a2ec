"""MCP servers that the operator names in a configuration file, in the format that other MCP clients use:

    {"mcpServers": {"files": {"command": "npx", "args": ["-y", "…"]}, "house": {"url": "https://…/mcp"}}}

The official SDK speaks to them, over stdio or streamable HTTP.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator

from agent.tools.function_tool import MAX_OUTPUT_CHARACTERS, Caller, ServerTool
from agent.tools.protocol import ToolOutput, ToolTraits
from chat.types import Tool

_log = logging.getLogger("rejoinder.server")

MAX_TOOLS = 64
"""Tools of one server."""

START_TIMEOUT_S = 30.0
"""How long a server may take to start and to list its tools. Some are installed when they are first started."""

_RETRY_S = (1.0, 5.0, 30.0, 120.0)
"""Waits before a server that has failed is connected again; the last one is repeated."""

_CALL_TIMEOUT_S = 60.0

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


class McpServerConfig(BaseModel):
    """One server: a command to start, or a URL. Fields of other clients that are not listed here have no effect.

    Attributes:
        always_allow: tools that are called without asking the user, although they are not read-only.
        allowed_tools: names of the tools to use; None for all.
    """

    model_config = ConfigDict(extra="ignore")

    command: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: Path | None = None
    url: Annotated[str | None, Field(validation_alias=AliasChoices("url", "serverUrl", "httpUrl"))] = None
    headers: dict[str, str] = {}
    disabled: bool = False
    always_allow: Annotated[
        list[str], Field(validation_alias=AliasChoices("alwaysAllow", "autoApprove", "always_allow"))
    ] = []
    allowed_tools: Annotated[
        list[str] | None, Field(validation_alias=AliasChoices("allowedTools", "includeTools", "allowed_tools"))
    ] = None

    @model_validator(mode="after")
    def _check(self) -> McpServerConfig:
        if (self.command is None) == (self.url is None):
            raise ValueError("give either a command or a url")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError("a url begins with https:// or http://")
        return self


def read_mcp_config(path: Path) -> dict[str, McpServerConfig]:
    """The servers in a configuration file, by name. `${NAME}` and `${NAME:-default}` stand for environment variables.

    Raises:
        ValueError: the file cannot be read. The message names the file and the field.
    """
    try:
        text = path.expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot read the MCP configuration {path} ({error.strerror})") from None
    try:
        servers = json.loads(text)["mcpServers"]
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg}") from None
    except (KeyError, TypeError):
        raise ValueError(f'{path} has no object "mcpServers"') from None
    if not isinstance(servers, dict):
        raise ValueError(f'{path}: "mcpServers" is an object with a server for each name')
    configs = {}
    for name, fields in servers.items():
        try:
            configs[name] = McpServerConfig.model_validate(_expanded(fields))
        except (ValidationError, ValueError) as error:
            field: tuple[int | str, ...] = ()
            reason = str(error)
            if isinstance(error, ValidationError):
                field, reason = error.errors()[0]["loc"], error.errors()[0]["msg"].removeprefix("Value error, ")
            where = ".".join(map(str, ("mcpServers", name, *field)))
            raise ValueError(f"{path}: {where}: {reason}") from None
    return {name: config for name, config in configs.items() if not config.disabled}


def _expanded(value: Any) -> Any:
    """The value with the environment's variables in its texts."""
    if isinstance(value, dict):
        return {key: _expanded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_expanded(part) for part in value]
    return _VARIABLE.sub(_variable, value) if isinstance(value, str) else value


def _variable(match: re.Match[str]) -> str:
    value = os.environ.get(match[1], match[2])
    if value is None:
        raise ValueError(f"the environment variable {match[1]} is not set")
    return value


class McpServerConnection:
    """Keeps the connection to one server, from a task of its own.

    Args:
        on_tools: called with the server's tools when it is connected, and with none when it no longer is.
    """

    def __init__(self, name: str, config: McpServerConfig, on_tools: Callable[[list[ServerTool]], None]) -> None:
        self._name, self._config, self._on_tools = name, config, on_tools
        self._failed = asyncio.Event()
        self.listed = asyncio.Event()
        """Set once the server's tools are known, or it has failed."""

    async def run(self) -> None:
        """Stay connected until cancelled. A server that fails is connected again later."""
        attempt = 0
        while True:
            try:
                async with AsyncExitStack() as stack:
                    async with asyncio.timeout(START_TIMEOUT_S):
                        client = await self._connect(stack)
                        tools = await self._list(client)
                    _log.info("the MCP server %r has %d tools", self._name, len(tools))
                    self._on_tools(tools)
                    self.listed.set()
                    attempt = 0
                    self._failed.clear()
                    await self._failed.wait()
            except Exception as error:
                reason = (
                    f"no answer within {START_TIMEOUT_S:.0f} s" if isinstance(error, TimeoutError) else _cause(error)
                )
                _log.warning("the MCP server %r cannot be used: %s", self._name, reason)
            finally:
                self._on_tools([])
                self.listed.set()
            await asyncio.sleep(_RETRY_S[min(attempt, len(_RETRY_S) - 1)])
            attempt += 1

    async def _connect(self, stack: AsyncExitStack) -> Client:
        config = self._config
        if config.command is not None:
            server: Any = StdioServerParameters(
                command=config.command, args=config.args, env=config.env or None, cwd=config.cwd
            )
        else:
            http = await stack.enter_async_context(
                httpx2.AsyncClient(headers=config.headers, timeout=_CALL_TIMEOUT_S, trust_env=False)
            )
            server = streamable_http_client(config.url or "", http_client=http)
        client = await stack.enter_async_context(Client(server, read_timeout_seconds=_CALL_TIMEOUT_S))
        # The SDK would check outputs by the server's own schema, whose patterns would run in Python's `re`.
        setattr(client.session, "validate_tool_result", _accept_output)  # noqa: B010  # a method
        return client

    async def _list(self, client: Client) -> list[ServerTool]:
        listed: list[Any] = []
        cursor: str | None = None
        while len(listed) < MAX_TOOLS:
            page = await client.list_tools(cursor=cursor)
            listed += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        allowed = self._config.allowed_tools
        return [self._tool(client, one) for one in listed[:MAX_TOOLS] if allowed is None or one.name in allowed]

    def _tool(self, client: Client, listed: Any) -> ServerTool:
        hints = listed.annotations
        read_only = bool(hints is not None and hints.read_only_hint)
        asks = not read_only and listed.name not in self._config.always_allow
        traits = ToolTraits(read_only=read_only, consequential=asks, timeout_s=_CALL_TIMEOUT_S)
        declaration = Tool(listed.name, listed.description or "", listed.input_schema)
        return ServerTool(declaration, traits, partial(self._call, client, listed.name))

    async def _call(self, client: Client, name: str, arguments: dict[str, Any], caller: Caller) -> ToolOutput:
        try:
            result = await client.call_tool(name, arguments)
        except MCPError:
            raise
        except Exception as error:
            self._failed.set()  # the connection is lost
            raise ConnectionError(f"the MCP server {self._name} cannot be reached ({_cause(error)})") from None
        text = "\n".join(part.text for part in result.content if part.type == "text")
        if not text and result.structured_content is not None:
            text = json.dumps(result.structured_content, ensure_ascii=False)
        if len(text) > MAX_OUTPUT_CHARACTERS:
            text = text[:MAX_OUTPUT_CHARACTERS] + " [cut]"
        return ToolOutput(text or "Done.", failed=bool(result.is_error))


async def _accept_output(name: str, result: Any) -> None:
    """The language model reads an output as text, whatever schema it has."""


def _cause(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
