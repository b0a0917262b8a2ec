"""MCP servers that the operator names in a configuration file, in the format that other MCP clients use:

    {"mcpServers": {"files": {"command": "npx", "args": ["-y", "…"]}, "house": {"url": "https://…/mcp"}}}

Their tools are tools of the server (`server_tools.py`). A server that fails is connected again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from mcp import StdioServerParameters
from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, ValidationError, model_validator

from agent.addresses import leaves_machine
from agent.credentials import credential
from agent.tools.function_tool import Caller, ServerTool
from agent.tools.mcp_client import CALL_TIMEOUT_S, McpClient
from agent.tools.mcp_tool import McpError, McpTool
from agent.tools.protocol import ToolOutput, ToolTraits
from chat.types import Tool

_log = logging.getLogger("rejoinder.server")

START_TIMEOUT_S = 30.0
"""How long a server may take to start and to list its tools. Some are installed when they are first started."""

_RETRY_S = (1.0, 5.0, 30.0, 120.0)
"""Waits before a server that has failed is connected again; the last one is repeated."""

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


_UNFILTERED = (
    "arguments for the MCP server %r leave this machine, and may hold what other tools returned: list under outgoing "
    "those of which only words that were said may leave"
)


class McpServerConfig(BaseModel):
    """One server: a command to start, or a URL. Fields of other clients that are not listed here have no effect.

    Attributes:
        read_only: tools that change nothing, so that they are called without asking the user, and before it is certain
            that the turn is over. What the server itself says about that has no effect.
        always_allow: tools that are called without asking the user, although they change something.
        outgoing: arguments that leave this machine, as of a `ToolTraits`, whichever tools have them; None if the
            operator has not said which.
        allowed_tools: names of the tools to use; None for all.
    """

    command: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: Path | None = None
    url: Annotated[str | None, Field(validation_alias=AliasChoices("url", "serverUrl", "httpUrl"))] = None
    headers: dict[str, str] = {}
    disabled: bool = False
    read_only: Annotated[list[str], Field(validation_alias=AliasChoices("readOnly", "read_only"))] = []
    always_allow: Annotated[
        list[str], Field(validation_alias=AliasChoices("alwaysAllow", "autoApprove", "always_allow"))
    ] = []
    outgoing: list[str] | None = None
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


def _expanded(value: Any) -> Any:
    """The value with the environment's variables, and secrets from files, in its texts."""
    if isinstance(value, dict):
        return {key: _expanded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_expanded(part) for part in value]
    return _VARIABLE.sub(_variable, value) if isinstance(value, str) else value


def _variable(match: re.Match[str]) -> str:
    value = os.environ.get(match[1], credential(match[1]) or match[2])
    if value is None:
        raise ValueError(f"the environment variable {match[1]} is not set")
    return value


class _McpConfig(BaseModel):
    servers: Annotated[dict[str, Annotated[McpServerConfig, BeforeValidator(_expanded)]], Field(alias="mcpServers")]


def read_mcp_config(path: Path) -> dict[str, McpServerConfig]:
    """The servers in a configuration file, by name. `${NAME}` and `${NAME:-default}` stand for environment variables.

    Raises:
        ValueError: the file cannot be read. The message names the file and the field.
    """
    try:
        config = _McpConfig.model_validate(json.loads(Path(os.path.expanduser(path)).read_text(encoding="utf-8")))
    except OSError as error:
        raise ValueError(f"cannot read the MCP configuration {path} ({error.strerror})") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ValueError(f"{path}: {where}: {first['msg'].removeprefix('Value error, ')}") from None
    return {name: server for name, server in config.servers.items() if not server.disabled}


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
            client = McpClient(self._server, self._config.headers)
            try:
                listed, allowed = await client.list_tools(START_TIMEOUT_S), self._config.allowed_tools
                tools = [self._tool(client, one) for one in listed if allowed is None or one.name in allowed]
                _log.info("the MCP server %r has %d tools", self._name, len(tools))
                if asking := [tool.name for tool in tools if tool.traits.consequential]:
                    message = "%s of the MCP server %r ask the user first: list under readOnly what changes nothing"
                    _log.info(message, ", ".join(asking), self._name)
                elsewhere = leaves_machine(urlsplit(self._config.url or "").hostname or "localhost")
                if elsewhere and self._config.outgoing is None:
                    _log.info(_UNFILTERED, self._name)
                used = {name for tool in tools for name in tool.traits.outgoing}
                if missing := set(self._config.outgoing or ()) - used:
                    message = "outgoing of the MCP server %r names %s, which none of its tools takes"
                    _log.warning(message, self._name, ", ".join(sorted(missing)))
                self._on_tools(tools)
                self.listed.set()
                attempt = 0
                self._failed.clear()
                await self._failed.wait()
            except McpError as error:
                _log.warning("the MCP server %r cannot be used: %s", self._name, error)
            except Exception:  # what a server sends must not end this task
                _log.exception("the MCP server %r cannot be used", self._name)
            finally:
                self._on_tools([])
                self.listed.set()
                await client.close()
            await asyncio.sleep(_RETRY_S[min(attempt, len(_RETRY_S) - 1)])
            attempt += 1

    @property
    def _server(self) -> str | StdioServerParameters:
        config = self._config
        if config.command is None:
            return config.url or ""
        return StdioServerParameters(command=config.command, args=config.args, env=config.env or None, cwd=config.cwd)

    def _tool(self, client: McpClient, tool: McpTool) -> ServerTool:
        read_only = tool.name in self._config.read_only
        asks = not read_only and tool.name not in self._config.always_allow
        taken = tool.input_schema.get("properties", {})
        outgoing = tuple(name for name in self._config.outgoing or () if name in taken)
        traits = ToolTraits(read_only=read_only, consequential=asks, timeout_s=CALL_TIMEOUT_S, outgoing=outgoing)
        declaration = Tool(tool.name, tool.description, tool.input_schema)
        return ServerTool(declaration, traits, partial(self._call, client, tool.name))

    async def _call(self, client: McpClient, name: str, arguments: dict[str, Any], caller: Caller) -> ToolOutput:
        try:
            return ToolOutput(await client.call_tool(name, arguments) or "Done.")
        except McpError as error:
            if error.kind == "tool_execution_error":
                return ToolOutput(str(error), failed=True)
            if error.kind == "http_error":
                self._failed.set()
            _log.warning("the call of %s of the MCP server %r failed: %s", name, self._name, error.kind)
            return ToolOutput(f"The call failed: {error}", failed=True)
