"""A local HTTP server that answers GET requests with prepared JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass
class JsonServer:
    """Records path and query of each request."""

    url: str = ""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)


@asynccontextmanager
async def json_server(answers: Mapping[str, Any]) -> AsyncIterator[JsonServer]:
    """Answers by path: an object, raw bytes, a status with an object, or None for never."""
    server = JsonServer()
    waiting = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        target = urlsplit(request.split()[1])
        server.requests.append((target.path, dict(parse_qsl(target.query))))
        answer = answers.get(target.path, (404, {}))
        if answer is None:
            await waiting.wait()
        status, content = answer if isinstance(answer, tuple) else (200, answer)
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        encoding = "Content-Encoding: gzip\r\n" if body.startswith(b"\x1f\x8b") else ""
        head = f"HTTP/1.1 {status} X\r\n{encoding}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        waiting.set()
        listening.close()
