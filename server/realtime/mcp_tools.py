"""The MCP servers of one conversation: which tools they have, and the calls that responses make of them.

For the voice session these are ordinary functions. On the wire a call is an `mcp_call` item, or first an
`mcp_approval_request`; the server makes the call itself and adds the output. Only servers that the operator allows are
contacted.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from agent.background_tasks import BackgroundTasks
from agent.tools.conversation_tools import ConversationTools
from agent.tools.mcp_tool import McpError, McpTool
from chat.types import Tool
from server.budgets import TOOL_LISTS, Kept, memory
from server.mcp_access import OWN_URL, declaration, is_wanted, names, request_headers
from server.realtime.events import ServerEvent, server_event
from server.realtime.items import McpApprovalResponseItem, item_object
from server.realtime.session_config import McpApprovalFilter, McpServer
from voice.history import FunctionCall, FunctionCallOutput, History, HistoryItem, new_id

if TYPE_CHECKING:
    from agent.tools.mcp_client import McpClient

_log = logging.getLogger("rejoinder.server")

NOT_APPROVED = "The user did not approve this call, so it was not made."
"""The output of a call that the client refused."""

MAX_LISTING_WAIT_S = 2.0
"""How long a response waits for servers to list their tools. A server has 15 s to list them, but somebody waits for the
response to begin."""

_MAX_CALLS = 64
"""Calls that can be approved and retrieved: the newest. An output has 8,000 characters at most, and arguments are no
longer than a response, so that they take about 1 MB."""

CallKind = Literal["function_call", "mcp_call", "mcp_approval_request"]
"""What a function call of the voice session is on the wire."""


@dataclass
class _Server:
    """A server of the session.

    Attributes:
        client: None for the server's own tools, which the voice session calls.
        tools: once they are listed.
        size: bytes of memory of the list, unless the tools are the server's own.
    """

    config: McpServer
    client: McpClient | None
    tools: dict[str, McpTool] = field(default_factory=dict)
    size: int = 0
    listing: asyncio.Task[None] = field(init=False)


@dataclass
class _Call:
    """A call: its wire format, and what runs it.

    Attributes:
        in_conversation: whether its response is part of the conversation.
        answer_id: of the item by which the client has approved or refused it; empty before that.
        output_index: of its item in the response.
    """

    server: _Server
    item: FunctionCall
    wire: dict[str, Any]
    in_conversation: bool
    answer_id: str = ""
    output_index: int = 0

    @property
    def position(self) -> dict[str, Any]:
        """Which item events are about."""
        return {"item_id": self.item.id, "output_index": self.output_index}


_NOT_RUN = {"type": "mcp_call", "approval_request_id": None, "output": None, "error": None}
"""Fields of a call that is not made yet."""


class McpTools:
    """The MCP tools of one conversation.

    Args:
        send: sends a server event.
        history: takes the outputs of calls.
        allowed_urls: the servers that the operator allows.
        on_tools_changed: called when a server's tools are known.
        check_tools: raises ValueError if the language model cannot call a tool, whose schema it cannot enforce.
        own: the server's own tools, or None.
        allowed_tools: names of those that the operator allows this conversation, of all servers; None for all.
    """

    def __init__(
        self,
        send: Callable[[ServerEvent], None],
        history: History,
        allowed_urls: Collection[str],
        on_tools_changed: Callable[[], None],
        check_tools: Callable[[Sequence[Tool]], None],
        own: ConversationTools | None = None,
        allowed_tools: Collection[str] | None = None,
    ) -> None:
        self._send, self._history, self._allowed_urls = send, history, allowed_urls
        self._on_tools_changed, self._check_tools = on_tools_changed, check_tools
        self._own, self._allowed_tools = own, allowed_tools
        self._servers: dict[str, _Server] = {}
        self._functions: frozenset[str] = frozenset()
        self._calls: dict[str, _Call] = {}
        self._outputs: dict[str, str] = {}  # the items of calls by those of their outputs, which clients do not know
        self._other_items = Kept[dict[str, Any]](TOOL_LISTS)
        self._tasks = BackgroundTasks()

    # Configuration.

    def refusal(self, config: McpServer) -> tuple[str, str] | None:
        """Why a server cannot be used, and the field that says so."""
        return server_refusal(config, self._allowed_urls)

    def configure(self, configs: Sequence[McpServer], functions: Collection[str]) -> None:
        """Connect to the servers of a new configuration, and forget others.

        Args:
            functions: names of the client's own functions, which tools of the same name do not replace.
        """
        self._functions = frozenset(functions)
        wanted = {config.server_label: config for config in configs}
        for label, server in list(self._servers.items()):
            if wanted.get(label) != server.config:
                del self._servers[label]
                # Its calls still refer to it, but a closed client makes none of them.
                server.tools = {}
                server.config = server.config.model_copy(update={"headers": None, "authorization": None})
                if server.client is not None:
                    self._tasks.spawn(server.client.close())
        for label, config in wanted.items():
            if label not in self._servers:
                self._connect(label, config)
        self._enable_own()

    def _enable_own(self) -> None:
        if self._own is not None:
            found = self._by_name().values()
            self._own.enable([tool.name for server, tool in found if server.client is None])

    def tools(self, *, own: bool = True) -> dict[str, list[Tool]]:
        """The tools that the language model may call, by the label of their server.

        Args:
            own: with the server's own, which run in the conversation only.
        """
        tools: dict[str, list[Tool]] = {}
        for server, tool in self._by_name().values():
            if own or server.client is not None:
                tools.setdefault(server.config.server_label, []).append(declaration(tool))
        return tools

    async def own_listed(self) -> None:
        """Wait until the server's own tools are known. That depends on no other server."""
        await self._wait_for(lambda server: server.client is None)

    async def listed(self) -> None:
        """Wait until the tools of all servers are known, up to `MAX_LISTING_WAIT_S`."""
        await self._wait_for(lambda server: True, MAX_LISTING_WAIT_S)

    async def _wait_for(self, concerns: Callable[[_Server], bool], limit_s: float | None = None) -> None:
        listings = [server.listing for server in self._servers.values() if concerns(server)]
        if not all(listing.done() for listing in listings):
            await asyncio.wait(listings, timeout=limit_s)

    async def _can_call(self, tool: McpTool, label: str) -> bool:
        try:
            await asyncio.to_thread(self._check_tools, [declaration(tool)])
        except ValueError as error:
            _log.warning("the tool %r of the MCP server %r cannot be called: %s", tool.name, label, error)
            return False
        return True

    def _by_name(self) -> dict[str, tuple[_Server, McpTool]]:
        """The tools that may be called. Where two servers have a tool of the same name, the first one is called."""
        found: dict[str, tuple[_Server, McpTool]] = {}
        for server in self._servers.values():
            for tool in server.tools.values():
                if tool.name not in self._functions and is_wanted(server.config.allowed_tools, tool):
                    found.setdefault(tool.name, (server, tool))
        return found

    def _connect(self, label: str, config: McpServer) -> None:
        headers = request_headers(config.headers, config.authorization)
        client = None if config.server_url == OWN_URL else self._new_client(config.server_url or "", headers)
        server = self._servers[label] = _Server(config, client)
        if client is None and self._own is not None and config.authorization:
            self._own.identify(config.authorization)
        server.listing = self._tasks.spawn(self._list(server))

    def _new_client(self, url: str, headers: Mapping[str, str]) -> McpClient:
        from agent.tools.mcp_client import McpClient  # only where MCP servers are allowed

        return McpClient(url, headers)

    async def _list(self, server: _Server) -> None:
        item_id, label = new_id("mcpl"), server.config.server_label
        item: dict[str, Any] = {"id": item_id, "type": "mcp_list_tools", "server_label": label, "tools": []}
        self._send(server_event("conversation.item.added", item=item, previous_item_id=None))
        self._send(server_event("mcp_list_tools.in_progress", item_id=item_id))
        try:
            listed = _own_tools(self._own) if server.client is None else await server.client.list_tools()
            if self._allowed_tools is not None:
                listed = [tool for tool in listed if tool.name in self._allowed_tools]
            item = {**item, "tools": [asdict(tool) for tool in listed]}
            size = memory(item)
            others = sum(other.size for other in self._servers.values())
            if server.client is not None and size + others > TOOL_LISTS.bytes:
                raise McpError("protocol_error", f"all lists together have more than {TOOL_LISTS.bytes >> 10} KiB")
        except McpError as error:
            _log.warning("the tools of the MCP server %r cannot be listed: %s", label, error)
            item = {**item, "tools": [], "error": str(error)}
            self._other_items.put(item_id, item, memory(item))
            self._send(server_event("conversation.item.done", item=item, previous_item_id=None))
            self._send(server_event("mcp_list_tools.failed", item_id=item_id))
            if server.client is not None:
                await server.client.close()
            return
        server.size = 0 if server.client is None else size  # its own tools are in memory anyway
        server.tools = {tool.name: tool for tool in listed if await self._can_call(tool, label)}
        self._other_items.put(item_id, item, size)
        self._enable_own()
        self._on_tools_changed()
        self._send(server_event("conversation.item.done", item=item, previous_item_id=None))
        self._send(server_event("mcp_list_tools.completed", item_id=item_id))

    # Calls.

    def started(self, item: FunctionCall, *, in_conversation: bool) -> None:
        """The voice session starts a function call, which may be one of ours.

        Args:
            in_conversation: whether its response is part of the conversation, which takes its output then.
        """
        if item.name not in (tools := self._by_name()):
            return
        server, tool = tools[item.name]
        # Where a call of our own tools needs approval, the session asks aloud.
        approval = server.client is not None and _needs_approval(server.config.require_approval, tool)
        kind = {"type": "mcp_approval_request"} if approval else _NOT_RUN
        wire = {"id": item.id, "server_label": server.config.server_label, "name": item.name, "arguments": "", **kind}
        self._calls[item.id] = _Call(server, item, wire, in_conversation)
        if len(self._calls) > _MAX_CALLS:
            del self._calls[next(iter(self._calls))]
        if len(self._outputs) > _MAX_CALLS:
            del self._outputs[next(iter(self._outputs))]

    def kind(self, item_id: str) -> CallKind:
        """What a function call is on the wire."""
        call = self._calls.get(item_id)
        kind: CallKind = call.wire["type"] if call is not None else "function_call"
        return kind

    def item_object(self, item: HistoryItem) -> dict[str, Any]:
        """An item in the protocol's format."""
        call = self._calls.get(item.id)
        return item_object(item) if call is None else {**call.wire, "arguments": call.item.arguments}

    def item_objects(self, items: Sequence[HistoryItem]) -> list[dict[str, Any]]:
        """The items of the history in the protocol's format: calls carry their outputs, and after a request for
        approval come its answer and the call that was made."""
        calls = {call.item.call_id for call in self._calls.values()}
        written: list[dict[str, Any]] = []
        for item in items:
            if isinstance(item, FunctionCallOutput) and item.call_id in calls:
                continue
            written.append(self.item_object(item))
            if item.id in self._calls:
                answer = self._other_items.get(self._calls[item.id].answer_id)
                made = [call.item for call in self._calls.values() if call.wire.get("approval_request_id") == item.id]
                written += [*([] if answer is None else [answer]), *map(self.item_object, made)]
        return written

    def other_item(self, item_id: str) -> dict[str, Any] | None:
        """An item that is not in the history: a list of tools, an approval, or a call that was approved."""
        if item_id in self._calls:
            return self.item_object(self._calls[item_id].item)
        return self._other_items.get(item_id)

    def finished(self, item: FunctionCall, output_index: int) -> None:
        """A call's arguments are complete, or it was cancelled before."""
        call = self._calls.get(item.id)
        if call is None:
            return
        if not item.complete:
            self._fail(call, McpError("tool_execution_error", "the call was cancelled before it was complete"))
        elif call.wire["type"] == "mcp_call":
            call.output_index = output_index
            self._begin(call)

    def returned(self, output: FunctionCallOutput) -> bool:
        """The voice session adds the output of a call. Whether the call is of an MCP tool, whose item carries it."""
        calls = [call for call in self._calls.values() if call.item.call_id == output.call_id]
        for call in calls:
            self._outputs[output.id] = call.item.id
            if call.server.client is None and call.item.complete:
                self._complete(call, output.text)
        return bool(calls)

    def approve(self, response: McpApprovalResponseItem) -> dict[str, Any] | None:
        """Make a call that the client has approved, or record that it has not. Returns the response's item, or None if
        there is no such request, it was cancelled before it was complete, or it has been answered."""
        call = self._calls.get(response.approval_request_id)
        if call is None or call.wire["type"] != "mcp_approval_request":
            return None
        if call.answer_id or not call.item.complete:
            return None
        call.answer_id = response.id or new_id("mcpr")
        answer = {**response.model_dump(), "id": call.answer_id}
        self._other_items.put(call.answer_id, answer, memory(answer))
        if not response.approve:
            self._add_output(call, NOT_APPROVED)
            return answer
        self._tasks.spawn(self._run_approved(call))
        return answer

    async def _run_approved(self, call: _Call) -> None:
        """Make a call as an item of its own, once the client knows that it is approved."""
        made = replace(call.item, id=new_id("item"))
        wire = {**call.wire, **_NOT_RUN, "id": made.id, "approval_request_id": call.item.id}
        self._calls[made.id] = approved = _Call(call.server, made, wire, call.in_conversation)
        if call.in_conversation:
            item = self.item_object(made)
            self._send(server_event("conversation.item.added", item=item, previous_item_id=call.item.id))
        self._begin(approved)

    def _begin(self, call: _Call) -> None:
        """Make a call, unless the voice session does."""
        self._send(server_event("response.mcp_call.in_progress", **call.position))
        if call.server.client is not None:
            self._tasks.spawn(self._run(call, call.server.client))

    async def _run(self, call: _Call, client: McpClient) -> None:
        label, name = call.server.config.server_label, call.item.name
        _log.info("calling %s of the MCP server %r", name, label)
        try:
            output = await client.call_tool(name, json.loads(call.item.arguments))
        except McpError as error:
            _log.warning("the call of %s of the MCP server %r failed: %s", name, label, error.kind)
            self._add_output(call, f"The call failed: {error}")
            self._send(server_event("response.mcp_call.failed", **call.position))
            self._fail(call, error)
            return
        self._add_output(call, output)
        self._complete(call, output)

    def _add_output(self, call: _Call, text: str) -> None:
        if call.in_conversation:
            output = FunctionCallOutput(new_id("item"), call.item.call_id, text)
            self._outputs[output.id] = call.item.id
            self._history.add(output)

    def shown(self, item_id: str | None) -> str | None:
        """The item that clients know in place of another one: the call instead of its output."""
        return None if item_id is None else self._outputs.get(item_id, item_id)

    def _complete(self, call: _Call, output: str) -> None:
        call.wire["output"] = output
        self._send(server_event("response.mcp_call.completed", **call.position))
        self._send_done(call)

    def _fail(self, call: _Call, error: McpError) -> None:
        if call.wire["type"] == "mcp_call":
            call.wire["error"] = {"type": error.kind, "message": str(error)}
            if error.kind != "tool_execution_error":
                call.wire["error"]["code"] = error.code
        self._send_done(call)

    def _send_done(self, call: _Call) -> None:
        if call.in_conversation:
            self._send(server_event("conversation.item.done", item=self.item_object(call.item)))

    async def close(self) -> None:
        """The conversation has ended: calls in progress are abandoned."""
        await self._tasks.close()
        for server in self._servers.values():
            if server.client is not None:
                await server.client.close()
        if self._own is not None:
            self._own.close()


def server_refusal(config: McpServer, allowed_urls: Collection[str]) -> tuple[str, str] | None:
    """Why a server cannot be used, and the field that says so; None if it can.

    Args:
        allowed_urls: the servers that the operator allows.
    """
    if config.connector_id is not None:
        return "connectors are OpenAI's own: give a server_url", "connector_id"
    if config.tunnel_id is not None:
        return "tunnels are OpenAI's own: give a server_url", "tunnel_id"
    if config.server_url is None:
        return "a server_url is required", "server_url"
    if config.server_url not in allowed_urls and config.server_url != OWN_URL:
        return f"the operator of this server does not allow the MCP server {config.server_url}", "server_url"
    return None


def _own_tools(tools: ConversationTools | None) -> list[McpTool]:
    """The server's own tools, as if an MCP server listed them."""
    return [
        McpTool(
            tool.name,
            tool.declaration.description,
            tool.declaration.parameters,
            {"readOnlyHint": tool.traits.read_only, "destructiveHint": tool.traits.consequential},
        )
        for tool in (tools.all if tools is not None else ())
    ]


def _needs_approval(required: Literal["always", "never"] | McpApprovalFilter | None, tool: McpTool) -> bool:
    """Approval is needed unless the client says that it is not. Whatever an MCP server says of its own tools, none
    counts as one that changes nothing."""
    if required is None or isinstance(required, str):
        return required != "never"
    if required.always is not None and names(required.always, tool):
        return True
    return required.never is None or bool(required.never.read_only) or not names(required.never, tool)
