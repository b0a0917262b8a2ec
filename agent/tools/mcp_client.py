"""A client of one MCP server, over streamable HTTP or stdio. The official SDK speaks the protocol; this keeps the
connection, limits what the server may send, and says in a sentence why a request failed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Any

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CONNECTION_CLOSED, INVALID_REQUEST, PARSE_ERROR, Implementation
from pydantic import ValidationError

from agent.background_tasks import cancel
from agent.tools.function_tool import MAX_OUTPUT_CHARACTERS
from agent.tools.mcp_tool import McpError, McpTool, is_readable_schema

_log = logging.getLogger("rejoinder.server")

MAX_TOOLS = 64
"""Tools of one server. A language model of this size chooses among few."""

MAX_RESPONSE_BYTES = 1 << 20
"""Size of one answer of a server, of one event of a stream, or of all pages of a list of tools."""

LIST_TIMEOUT_S, CALL_TIMEOUT_S = 15.0, 60.0
"""How long connecting and listing the tools, and one call, may take."""

_CLOSE_S = 2.0
"""How long a server may take to end a session."""

# What the SDK logs is raised as well, and ours says it without the server's words.
for _logger in ("mcp", "client"):
    logging.getLogger(_logger).setLevel(logging.CRITICAL)


class McpClient:
    """A client of one server, which is connected by the first request. After a connection is lost, the next request
    makes another; after `close`, none does.

    Args:
        server: the URL of its endpoint, or the command that starts it.
        headers: sent with every HTTP request.
        transport: for tests.
    """

    def __init__(
        self,
        server: str | StdioServerParameters,
        headers: Mapping[str, str] | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._server, self._headers, self._transport = server, headers, transport
        self._opened: asyncio.Future[Client]
        self._connection: asyncio.Task[None] | None = None
        self._is_closed = False

    async def list_tools(self, limit_s: float = LIST_TIMEOUT_S) -> list[McpTool]:
        """All tools of the server, up to `MAX_TOOLS`. Raises McpError."""
        tools: list[McpTool] = []
        cursor, size = None, 0
        async with self._connected(limit_s) as client:
            for _ in range(MAX_TOOLS):  # a page without tools may say that there are more
                page = await client.list_tools(cursor=cursor)
                size += len(page.model_dump_json())
                if size > MAX_RESPONSE_BYTES:
                    raise McpError("protocol_error", f"the list of tools has more than {MAX_RESPONSE_BYTES} bytes")
                for tool in page.tools:
                    if not is_readable_schema(tool.input_schema):
                        _log.warning("a tool of an MCP server is left out: its input schema is none")
                        continue
                    hints = tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations else None
                    tools.append(McpTool(tool.name, tool.description or "", tool.input_schema, hints))
                if (cursor := page.next_cursor) is None or len(tools) >= MAX_TOOLS:
                    break
        return tools[:MAX_TOOLS]

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> str:
        """The text that a tool returns. Raises McpError."""
        async with self._connected(CALL_TIMEOUT_S) as client:
            result = await client.call_tool(name, dict(arguments))
        text = "\n".join(part.text for part in result.content if part.type == "text")
        if not text and result.structured_content is not None:
            text = json.dumps(result.structured_content, ensure_ascii=False)
        if len(text) > MAX_OUTPUT_CHARACTERS:
            text = text[:MAX_OUTPUT_CHARACTERS] + " [cut]"
        if result.is_error:
            raise McpError("tool_execution_error", text or "the tool failed without a message")
        return text

    async def close(self) -> None:
        """End the session, close the connections and forget the headers. Further requests fail."""
        self._is_closed, self._headers = True, None
        if self._connection is not None:
            self._connection.cancel()
            await asyncio.wait([self._connection], timeout=_CLOSE_S)
            await cancel([self._connection])

    @asynccontextmanager
    async def _connected(self, limit_s: float) -> AsyncIterator[Client]:
        """The connection for one request. Raises McpError, also for what the request raises."""
        if self._is_closed:
            raise McpError("protocol_error", "the connection to the server is closed: the server is no longer in use")
        try:
            async with asyncio.timeout(limit_s):
                if self._connection is None or self._connection.done():
                    self._opened = asyncio.get_running_loop().create_future()
                    self._connection = asyncio.create_task(self._keep_connection(self._opened))
                yield await asyncio.shield(self._opened)
        except McpError:
            raise
        except TimeoutError:
            raise McpError("http_error", f"no answer within {limit_s:.0f} s", 504) from None
        except MCPError as error:
            message = str(error)
            if error.code == PARSE_ERROR:  # the SDK's message quotes the answer
                message = "the server did not answer: what it sent is not JSON-RPC"
            is_http = error.code == CONNECTION_CLOSED or 300 <= error.code < 600
            raise McpError("http_error" if is_http else "protocol_error", message, error.code) from None
        except ValidationError as error:
            field = ".".join(str(part) for part in error.errors()[0]["loc"])
            message = f"the server's answer does not follow the protocol: {field}: {error.errors()[0]['msg']}"
            raise McpError("protocol_error", message) from None
        except Exception as error:  # such as a command that does not start
            raise McpError("protocol_error", str(error) or type(error).__name__) from None

    async def _keep_connection(self, opened: asyncio.Future[Client]) -> None:
        """The SDK wants a connection to be closed by the task that has opened it."""
        try:
            async with AsyncExitStack() as stack:
                server: Any = self._server
                if isinstance(server, str):
                    limited = _LimitedTransport(self._transport or httpx2.AsyncHTTPTransport(trust_env=False))
                    http = httpx2.AsyncClient(
                        headers=self._headers, transport=limited, timeout=CALL_TIMEOUT_S, trust_env=False
                    )
                    server = streamable_http_client(server, http_client=await stack.enter_async_context(http))
                info = Implementation(name="rejoinder", version=version("rejoinder"))
                client = Client(server, client_info=info, read_timeout_seconds=CALL_TIMEOUT_S, cache=None)
                connected = await stack.enter_async_context(client)
                # The SDK would check outputs by the server's own schema, whose patterns would run in Python's `re`.
                setattr(connected.session, "validate_tool_result", _accept_output)  # noqa: B010  # a method
                opened.set_result(connected)
                await asyncio.Event().wait()
        except Exception as error:
            cause: BaseException = error
            while isinstance(cause, BaseExceptionGroup):
                cause = cause.exceptions[0]
            if not opened.done():
                opened.set_exception(cause)
        finally:
            if not opened.done():
                opened.set_exception(ConnectionError("the connection was closed"))
            opened.exception()  # nobody may be waiting any more


class _LimitedTransport(httpx2.AsyncBaseTransport):
    """Limits the size of answers, which the SDK does for events of streams only. What HTTP reports becomes a JSON-RPC
    error with the status as its code: the SDK does not say which status a server answered with, and a connection that
    fails would end the session."""

    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """See `AsyncBaseTransport`."""
        try:
            request.headers["accept-encoding"] = "identity"
            response = await self._transport.handle_async_request(request)
            status, headers = response.status_code, response.headers
            if headers.get("content-encoding", "identity") != "identity":  # 1 MiB of it may be a gigabyte of text
                await response.aclose()
                return _error(400, INVALID_REQUEST, "the answer is compressed")
            if status == 200 and headers.get("content-type", "").startswith("text/event-stream"):
                return response
            body = b""
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MAX_RESPONSE_BYTES:
                    await response.aclose()
                    return _error(400, INVALID_REQUEST, f"the answer has more than {MAX_RESPONSE_BYTES} bytes")
        except httpx2.TimeoutException:
            return _error(504, 504, f"no answer within {CALL_TIMEOUT_S:.0f} s")
        except httpx2.RequestError as error:
            return _error(502, 502, f"cannot reach the server: {error or type(error).__name__}")
        # The SDK follows a redirect that stays with the server, and refuses any other.
        if status >= 300 and status not in (307, 308) and b'"jsonrpc"' not in body:
            return _error(max(status, 400), status, f"HTTP status {status}")
        kept = {name: headers[name] for name in ("content-type", "location", "mcp-session-id") if name in headers}
        return httpx2.Response(status, headers=kept, content=body)

    async def aclose(self) -> None:
        """See `AsyncBaseTransport`."""
        await self._transport.aclose()


def _error(status: int, code: int, message: str) -> httpx2.Response:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(status, json=error)


async def _accept_output(name: str, result: Any) -> None:
    """The language model reads an output as text, whatever schema it has."""
