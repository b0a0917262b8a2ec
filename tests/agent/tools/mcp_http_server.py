"""A real MCP server, made with the SDK, on a free port of this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from mcp.server.mcpserver import MCPServer

from tests.real_time import HANG_S


@contextmanager
def mcp_server(server: MCPServer) -> Iterator[tuple[str, uvicorn.Server]]:
    """Runs it in a thread; yields its URL and what serves it, whose `server_state.connections` are those that are
    open."""
    running = uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error"))
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", running
    finally:
        running.should_exit = True
        thread.join(timeout=HANG_S)
