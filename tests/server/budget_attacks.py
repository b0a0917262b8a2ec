"""Fills the budgets of a server, from a process of its own, whose memory is not the server's: one for each name that it
reads. It answers each with a line once the budget is full."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

from server.budgets import (
    CLIENT_SECRETS,
    CONVERSATION,
    JSON_BODY,
    SESSION_CONFIG,
    STORED_RESPONSES,
    TOOL_LISTS,
    UPLOAD,
    WEBHOOK,
    Budget,
)

MAX_RECORDINGS = 8


async def receive(client: ClientConnection, event_type: str) -> dict[str, Any]:
    while True:
        event: dict[str, Any] = json.loads(await client.recv())
        if event["type"] == event_type:
            return event


async def fill_client_secrets(address: str, web: httpx.AsyncClient) -> None:
    tools = [{"type": "function", "name": f"tool_{n}", "description": "x" * 32_000} for n in range(7)]
    body = json.dumps({"session": {"type": "realtime", "tools": tools}})
    for _ in range(CLIENT_SECRETS.bytes // len(body) + 4):
        assert (await web.post("/v1/realtime/client_secrets", content=body)).status_code == 200


async def fill_stored_responses(address: str, web: httpx.AsyncClient) -> None:
    words = [{"role": "user", "content": "\N{GRINNING FACE}" + "x" * (1 << 20)}, {"role": "user", "content": "Hello."}]
    body = json.dumps({"input": words, "truncation": "auto", "max_output_tokens": 1})
    for _ in range(STORED_RESPONSES.bytes // (4 << 20) + 1):
        assert (await web.post("/v1/responses", content=body)).status_code == 200


async def fill_tool_lists(address: str, web: httpx.AsyncClient) -> None:
    """The server's own tools, listed again and again."""
    async with connect(f"ws://{address}/v1/realtime", max_size=None) as client:
        size, listed = 0, list[str]()
        while size <= 2 * TOOL_LISTS.bytes:
            server = {"type": "mcp", "server_label": f"own_{size}", "server_url": "rejoinder:tools"}
            await client.send(json.dumps({"type": "session.update", "session": {"tools": [server]}}))
            item = (await receive(client, "conversation.item.done"))["item"]
            size, listed = size + len(json.dumps(item)), [*listed, item["id"]]
        await client.send(json.dumps({"type": "conversation.item.retrieve", "item_id": listed[-1]}))
        assert (await receive(client, "conversation.item.retrieved"))["item"]["id"] == listed[-1]
        await client.send(json.dumps({"type": "conversation.item.retrieve", "item_id": listed[0]}))
        assert "error" in await receive(client, "error")  # it made room


async def fill_uploads(address: str, web: httpx.AsyncClient) -> None:
    """As many recordings as are read at a time."""
    recording = bytes(UPLOAD.bytes - (64 << 10))

    async def upload() -> int:
        return (await web.post("/v1/audio/transcriptions", files={"file": ("a.wav", recording)})).status_code

    assert set(await asyncio.gather(*(upload() for _ in range(MAX_RECORDINGS)))) == {400}


async def never_ending(address: str, path: str, budget: Budget) -> None:
    """Send bodies that never end, until no more are read."""
    assert budget.total is not None
    head = f"POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {budget.bytes}\r\n\r\n"
    body, connections = head.encode() + b" " * (budget.bytes - 1), []
    for _ in range(budget.total // budget.bytes + 1):
        reader, writer = await asyncio.open_connection(*address.split(":"))
        writer.write(body)
        connections.append((reader, writer))
    answers = [asyncio.ensure_future(reader.read(12)) for reader, _ in connections]
    await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
    assert next(answer for answer in answers if answer.done()).result() == b"HTTP/1.1 503"
    for (_, writer), answer in zip(connections, answers, strict=True):
        answer.cancel()
        writer.transport.abort()


async def fill_bodies(address: str, web: httpx.AsyncClient) -> None:
    await never_ending(address, "/v1/chat/completions", JSON_BODY)


async def fill_webhooks(address: str, web: httpx.AsyncClient) -> None:
    await never_ending(address, "/phone/twilio.xml", WEBHOOK)


async def fill_conversations(address: str, web: httpx.AsyncClient) -> None:
    """The configuration and the items of several conversations."""
    tools = [{"type": "function", "name": f"tool_{n}", "description": "x" * 32_000} for n in range(6)]

    async def fill() -> None:
        async with connect(f"ws://{address}/v1/realtime") as client:
            await client.send(json.dumps({"type": "session.update", "session": {"tools": tools}}))
            await client.send(json.dumps({"type": "session.update", "session": {"instructions": "x" * 32_000}}))
            for n in range(CONVERSATION.bytes // 99_000 + 1):
                content = [{"type": "input_text", "text": f"{n}" + "x" * 99_000}]
                item = {"type": "message", "role": "user", "content": content}
                await client.send(json.dumps({"type": "conversation.item.create", "item": item}))
            assert (await receive(client, "error"))["error"]["code"] == "conversation_too_long"

    assert 7 * 32_000 < SESSION_CONFIG.bytes < 9 * 32_000
    await asyncio.gather(*(fill() for _ in range(8)))


async def fill_outbox(address: str, web: httpx.AsyncClient) -> None:
    """A client that asks for lists of tools, and reads nothing."""

    async def conversations() -> int:
        return int((await web.get("/healthz")).json()["conversations"])

    _, writer = await asyncio.open_connection(*address.split(":"), limit=1 << 12)
    key = base64.b64encode(b"0123456789abcdef").decode()
    writer.write(
        f"GET /v1/realtime HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    while await conversations() < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    for n in range(1500):
        server = b'{"type":"mcp","server_label":"%d","server_url":"rejoinder:tools"}' % (n % 2)
        event = b'{"type":"session.update","session":{"tools":[%s]}}' % server
        writer.write(bytes([0x81, 0x80 | len(event)]) + bytes(4) + event)  # masked with zeros
    while await conversations() > 1:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    writer.transport.abort()


ATTACKS = {
    "client secrets": fill_client_secrets,
    "stored responses": fill_stored_responses,
    "tool lists": fill_tool_lists,
    "uploads": fill_uploads,
    "bodies": fill_bodies,
    "webhooks": fill_webhooks,
    "conversations": fill_conversations,
    "outbox": fill_outbox,
}


async def main(address: str) -> None:
    async with httpx.AsyncClient(base_url=f"http://{address}", timeout=None) as web:
        for line in sys.stdin:
            await ATTACKS[line.strip()](address, web)
            print("full", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
