"""A tool of an MCP server, and how a request to the server fails. `mcp_client` makes the requests; the SDK that it uses
takes a second to import, which a server without MCP servers need not wait for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.matched_text import MAX_ERROR, for_patterns


class McpError(Exception):
    """A request to an MCP server failed.

    Attributes:
        kind: `http_error`, `protocol_error` or `tool_execution_error`, as the Realtime protocol names them.
        code: the HTTP status or the JSON-RPC error code.

    The message may be the server's own: it is cut to `MAX_ERROR` characters for logs, clients and the language model.
    """

    def __init__(self, kind: str, message: str, code: int = 0) -> None:
        super().__init__(for_patterns(message, MAX_ERROR))
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


def is_readable_schema(schema: Any) -> bool:
    """Whether the parts of a JSON Schema that are read here have the form that they should."""
    if not isinstance(schema, Mapping):
        return isinstance(schema, bool)
    properties, values, kind = schema.get("properties", {}), schema.get("enum", []), schema.get("format", "")
    if not (isinstance(properties, Mapping) and isinstance(values, list) and isinstance(kind, str)):
        return False
    return all(map(is_readable_schema, [*properties.values(), schema.get("items", True)]))
