"""The MCP servers of one response of the Responses API: their tools, and the calls that the server makes of them.

Only servers that the operator allows are contacted. `rejoinder:tools` stands for the server's own tools.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from agent.tool_loop import ToolLoop
from agent.tools.conversation_tools import ConversationTools
from agent.tools.mcp_tool import McpError, McpTool
from agent.tools.protocol import ToolOutput
from agent.tools.user_data import owner_id
from chat.types import Message, Tool, ToolCall
from model.engine.conversation import Conversation
from server.access.keys import ApiKey
from server.access.usage import key_name
from server.api_errors import APIError
from server.chat_completions.generation import CollectedCall
from server.chat_completions.response_output import Event, ResponseOutput
from server.chat_completions.responses_schema import ResponseMcpTool
from server.context import ServerContext
from server.mcp_access import OWN_URL, declaration, request_headers

if TYPE_CHECKING:
    from agent.tools.mcp_client import McpClient

_log = logging.getLogger("rejoinder.server")

CALL_TIMEOUT_S = 60.0
"""Of one call of an MCP server's tool; the server's own tools have limits of their own."""


@dataclass
class _Server:
    """A server of the response; `client` is None for the server's own tools."""

    config: ResponseMcpTool
    client: McpClient | None
    tools: list[McpTool] = field(default_factory=list)


class ServerSideTools:
    """The tools that a response may call by itself. Used as a context, at whose end the servers are disconnected.

    Args:
        configs: the servers that a request names.
        functions: names of the client's own functions, which tools of the same name do not replace.
        key: the client's.

    Attributes:
        declarations: the tools, for the language model.
        labels: the label of its server by the name of each tool.

    Raises:
        APIError: a server is not allowed, cannot be reached, or does not list its tools.
    """

    def __init__(
        self,
        context: ServerContext,
        configs: Sequence[ResponseMcpTool],
        functions: Sequence[str],
        key: ApiKey | None,
    ) -> None:
        self._functions, self._stack = frozenset(functions), AsyncExitStack()
        self._allowed = context.tool_access.allowed("api", key_name(key))
        self._own: ConversationTools | None = None
        self._servers: list[_Server] = []
        self.declarations: list[Tool] = []
        self.labels: dict[str, str] = {}
        self._of: dict[str, _Server] = {}
        for number, config in enumerate(configs):
            if config.server_url != OWN_URL and config.server_url not in context.mcp_servers:
                message = f"the operator of this server does not allow the MCP server {config.server_url}"
                raise APIError(400, message, f"tools[{number}].server_url", "mcp_server_not_allowed")
            if config.server_url != OWN_URL:
                from agent.tools.mcp_client import McpClient  # only where MCP servers are allowed

                client = McpClient(config.server_url, request_headers(config.headers, config.authorization))
                self._stack.push_async_callback(client.close)
                self._servers.append(_Server(config, client))
            elif context.tools is not None:
                self._own = context.tools.conversation(owner_id("key", key.name) if key else "", self._allowed)
                self._stack.callback(self._own.close)
                self._servers.append(_Server(config, None))

    async def __aenter__(self) -> ServerSideTools:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def connect(self, conversation: Conversation) -> None:
        """List the tools of all servers. Those that the language model cannot call are left out. Raises APIError."""
        await asyncio.gather(*(self._list(server) for server in self._servers))
        for server in self._servers:
            for tool in server.tools:
                if tool.name in self._functions or tool.name in self._of:
                    continue
                try:
                    await asyncio.to_thread(conversation.check_tools, [declaration(tool)])
                except ValueError as error:
                    _log.warning("the tool %r of an MCP server cannot be called: %s", tool.name, error)
                    continue
                self._of[tool.name], self.labels[tool.name] = server, server.config.server_label
                self.declarations.append(declaration(tool))
        if self._own is not None:
            self._own.enable([name for name, server in self._of.items() if server.client is None])

    async def _list(self, server: _Server) -> None:
        try:
            listed = self._own_tools() if server.client is None else await server.client.list_tools()
        except McpError as error:
            message = f"the tools of the MCP server {server.config.server_label!r} cannot be listed: {error}"
            raise APIError(424, message, "tools", error.kind) from None
        wanted = [tool for tool in listed if self._allowed is None or tool.name in self._allowed]
        server.tools = [tool for tool in wanted if server.config.allows(tool)]

    def _own_tools(self) -> list[McpTool]:
        """The server's own, except those that ask the user first: nobody is asked here."""
        assert self._own is not None
        own = [tool for tool in self._own.all if not tool.traits.consequential]
        return [
            McpTool(
                tool.declaration.name, tool.declaration.description, tool.declaration.parameters,
                {"readOnlyHint": tool.traits.read_only},
            )
            for tool in own
        ]  # fmt: skip

    def lists(self) -> Iterator[tuple[dict[str, Any], list[Event]]]:
        """An item with the tools of each server, and the events that report it, without the item's place."""
        for server in self._servers:
            opened: dict[str, Any] = {
                "id": f"mcpl_{uuid.uuid4().hex}", "type": "mcp_list_tools", "server_label": server.config.server_label,
                "tools": [], "error": None,
            }  # fmt: skip
            item = {**opened, "tools": [asdict(tool) for tool in server.tools]}
            yield (
                item,
                [
                    {"type": "response.output_item.added", "item": opened},
                    {"type": "response.mcp_list_tools.in_progress", "item_id": item["id"]},
                    {"type": "response.mcp_list_tools.completed", "item_id": item["id"]},
                    {"type": "response.output_item.done", "item": item},
                ],
            )

    async def run(
        self, calls: Sequence[CollectedCall], output: ResponseOutput, loop: ToolLoop, messages: list[Message]
    ) -> AsyncIterator[Event]:
        """Make calls of one step, one after the other; their outputs are added to the messages."""
        for call in calls:
            made = ToolCall(call.id, call.name, call.arguments)
            returned = await loop.call(made, partial(self._make, made), self._timeout_s(call.name))
            messages.append(Message("tool", returned.text, tool_call_id=call.id))
            for event in output.returned(call, returned):
                yield event

    def _timeout_s(self, name: str) -> float:
        traits = None if self._own is None or self._of[name].client else self._own.traits(name)
        return CALL_TIMEOUT_S if traits is None else traits.timeout_s

    async def _make(self, call: ToolCall) -> ToolOutput:
        server = self._of[call.name]
        _log.info("calling %s of the MCP server %r", call.name, server.config.server_label)
        if server.client is not None:
            return ToolOutput(await server.client.call_tool(call.name, json.loads(call.arguments)))
        assert self._own is not None
        return await self._own.call(call.name, call.arguments)
