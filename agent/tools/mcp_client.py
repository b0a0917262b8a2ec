"""A client of one Model Context Protocol server: lists its tools and calls them, over streamable HTTP.

JSON-RPC 2.0 in POST requests; the server answers with JSON or with a stream of server-sent events. Source: the
specification of 2025-06-18, "Transports" and "Tools". Redirects are not followed, and everything that the server sends
is limited.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import httpx

PROTOCOL_VERSION = "2025-06-18"

MAX_TOOLS = 64
"""Tools of one server. A language model of this size chooses among few."""

MAX_RESPONSE_BYTES = 1 << 20
"""Size of one answer of a server."""

MAX_OUTPUT_CHARACTERS = 8000
"""A tool's output is cut to this length: about half of the language model's context."""

LIST_TIMEOUT_S, CALL_TIMEOUT_S = 15.0, 60.0
"""How long listing the tools and one call may take."""


class McpError(Exception):
    """A request to an MCP server failed.

    Attributes:
        kind: `http_error`, `protocol_error` or `tool_execution_error`, as the Realtime protocol names them.
        code: the HTTP status or the JSON-RPC error code.
    """

    def __init__(self, kind: str, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.kind, self.code = kind, code


@dataclass(frozen=True)
class McpTool:
    """A tool that a server offers."""

    name: str
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    annotations: Mapping[str, Any] | None = None

    @property
    def read_only(self) -> bool:
        """Whether the server says that the tool changes nothing."""
        return bool((self.annotations or {}).get("readOnlyHint"))


class McpClient:
    """A client of one server.

    Args:
        url: the server's endpoint.
        headers: sent with every request.
        transport: for tests.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str] | None = None, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._url, self._ids = url, itertools.count(1)
        accept = {"Accept": "application/json, text/event-stream"}
        self._http = httpx.AsyncClient(headers={**(headers or {}), **accept}, transport=transport, trust_env=False)
        self._session_headers: dict[str, str] | None = None

    async def list_tools(self) -> list[McpTool]:
        """All tools of the server, up to `MAX_TOOLS`. Raises McpError."""
        tools: list[McpTool] = []
        cursor: dict[str, Any] = {}
        while len(tools) < MAX_TOOLS:
            result = await self._request("tools/list", cursor, LIST_TIMEOUT_S)
            listed = result.get("tools")
            if not isinstance(listed, list):
                raise McpError("protocol_error", "the server's list of tools is not a list")
            tools += [_tool(one) for one in listed]
            if not isinstance(result.get("nextCursor"), str):
                break
            cursor = {"cursor": result["nextCursor"]}
        return tools[:MAX_TOOLS]

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> str:
        """The text that a tool returns. Raises McpError."""
        result = await self._request("tools/call", {"name": name, "arguments": arguments}, CALL_TIMEOUT_S)
        content = result.get("content")
        parts = content if isinstance(content, list) else []
        texts = [str(part.get("text", "")) for part in parts if isinstance(part, dict) and part.get("type") == "text"]
        text = "\n".join(texts)
        if not text and "structuredContent" in result:
            text = json.dumps(result["structuredContent"], ensure_ascii=False)
        if len(text) > MAX_OUTPUT_CHARACTERS:
            text = text[:MAX_OUTPUT_CHARACTERS] + " [cut]"
        if result.get("isError"):
            raise McpError("tool_execution_error", text or "the tool failed without a message")
        return text

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _request(self, method: str, params: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        if self._session_headers is None:
            await self._initialize(limit_s)
        result, _ = await self._post(method, params, limit_s)
        return result

    async def _initialize(self, limit_s: float) -> None:
        client = {"name": "rejoinder", "version": version("rejoinder")}
        params = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": client}
        result, headers = await self._post("initialize", params, limit_s)
        session = {"MCP-Protocol-Version": str(result.get("protocolVersion", PROTOCOL_VERSION))}
        if "mcp-session-id" in headers:
            session["Mcp-Session-Id"] = headers["mcp-session-id"]
        self._session_headers = session
        notification = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self._send(notification, limit_s)

    async def _post(
        self, method: str, params: Mapping[str, Any], limit_s: float
    ) -> tuple[dict[str, Any], Mapping[str, str]]:
        request_id = next(self._ids)
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        answers, headers = await self._send(message, limit_s)
        for answer in answers:
            if isinstance(answer, dict) and answer.get("id") == request_id:
                return _result(answer), headers
        raise McpError("protocol_error", f"the server did not answer {method}")

    async def _send(self, message: Mapping[str, Any], limit_s: float) -> tuple[list[Any], Mapping[str, str]]:
        """Send a message; returns the messages of the answer and its headers."""
        try:
            async with (
                asyncio.timeout(limit_s),
                self._http.stream(
                    "POST", self._url, json=message, headers=self._session_headers, timeout=limit_s
                ) as response,
            ):
                body = await _read(response)
                if response.status_code >= 300:
                    raise McpError("http_error", f"HTTP status {response.status_code}", response.status_code)
                return _messages(response.headers.get("content-type", ""), body), response.headers
        except (TimeoutError, httpx.TimeoutException):
            raise McpError("http_error", f"no answer within {limit_s:.0f} s", 504) from None
        except httpx.HTTPError as error:
            raise McpError("http_error", f"cannot reach the server: {error or type(error).__name__}", 502) from None


async def _read(response: httpx.Response) -> str:
    body = b""
    chunks: AsyncIterator[bytes] = response.aiter_bytes()
    async for chunk in chunks:
        body += chunk
        if len(body) > MAX_RESPONSE_BYTES:
            raise McpError("protocol_error", f"the answer has more than {MAX_RESPONSE_BYTES} bytes")
    return body.decode("utf-8", "replace")


def _messages(content_type: str, body: str) -> list[Any]:
    """The JSON-RPC messages of an answer."""
    texts = [body]
    if content_type.startswith("text/event-stream"):
        events = body.replace("\r\n", "\n").split("\n\n")
        texts = ["\n".join(_data(line) for line in event.split("\n") if line.startswith("data:")) for event in events]
    try:
        return [json.loads(text) for text in texts if text.strip()]
    except (ValueError, RecursionError) as error:
        raise McpError("protocol_error", f"the server's answer is not JSON ({error})") from None


def _data(line: str) -> str:
    return line.removeprefix("data:").removeprefix(" ")


def _result(answer: Mapping[str, Any]) -> dict[str, Any]:
    error = answer.get("error")
    if isinstance(error, dict):
        code = error.get("code")
        message = str(error.get("message", "the server reports an error"))
        raise McpError("protocol_error", message, code if isinstance(code, int) else 0)
    result = answer.get("result")
    if not isinstance(result, dict):
        raise McpError("protocol_error", "the server's answer has no result")
    return result


def _tool(listed: Any) -> McpTool:
    if not isinstance(listed, dict) or not isinstance(listed.get("name"), str):
        raise McpError("protocol_error", "a tool of the server has no name")
    schema, annotations = listed.get("inputSchema"), listed.get("annotations")
    return McpTool(
        listed["name"],
        str(listed.get("description") or ""),
        schema if isinstance(schema, dict) else {"type": "object", "properties": {}},
        annotations if isinstance(annotations, dict) else None,
    )
