"""What the Realtime protocol and the text API have in common when their clients name MCP servers. Each adds its own
wire format and rules of approval."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from agent.tools.mcp_tool import McpTool
from chat.types import Tool

OWN_URL = "rejoinder:tools"
"""Stands for the server's own tools, where a client names an MCP server."""


class ToolFilter(Protocol):
    """Selects tools: those with these names, or those that change nothing, or both."""

    @property
    def tool_names(self) -> Collection[str] | None: ...
    @property
    def read_only(self) -> bool | None: ...


def names(selection: ToolFilter, tool: McpTool) -> bool:
    """Whether a filter has the name of a tool, or names none."""
    return selection.tool_names is None or tool.name in selection.tool_names


def is_wanted(allowed: list[str] | ToolFilter | None, tool: McpTool) -> bool:
    """Whether a client wants to use a tool of its server; without a choice it wants all."""
    if allowed is None:
        return True
    if isinstance(allowed, list):
        return tool.name in allowed
    return names(allowed, tool) and allowed.read_only in (None, tool.read_only)


def declaration(tool: McpTool) -> Tool:
    """A tool for the language model."""
    return Tool(tool.name, tool.description, tool.input_schema)


def request_headers(headers: Mapping[str, str] | None, authorization: str | None) -> dict[str, str]:
    """The headers of requests to a server."""
    given = dict(headers or {})
    return given if authorization is None else {**given, "Authorization": f"Bearer {authorization}"}
