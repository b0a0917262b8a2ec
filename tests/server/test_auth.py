"""API keys and the origins of pages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.server.live_server import connected, receive, serving


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({}, False),
        ({"additional_headers": {"Authorization": "Bearer wrong"}}, False),
        ({"additional_headers": {"Authorization": "Bearer secret"}}, True),
        ({"subprotocols": ["realtime", "openai-insecure-api-key.secret"]}, True),
        ({"subprotocols": ["realtime", "openai-insecure-api-key.wrong"]}, False),
    ],
)
async def test_an_api_key_is_required_if_one_is_set(options: dict[str, Any], allowed: bool) -> None:
    with serving(api_keys=frozenset({"secret"})) as address:
        async with connected(address, **options) as client:
            if allowed:
                await receive(client, "session.created")
            else:
                assert (await receive(client, "error"))["error"]["code"] == "invalid_api_key"
            if "subprotocols" in options:
                assert client.subprotocol == "realtime"


async def test_pages_of_other_sites_cannot_connect() -> None:
    with serving(origins=frozenset({"https://friend.example"})) as address:
        for origin, allowed in (
            (f"http://{address}", True),
            ("https://friend.example", True),
            ("https://evil.example", False),
        ):
            async with connected(address, origin=origin) as client:
                event_type = json.loads(await client.recv())["type"]
                assert event_type == ("session.created" if allowed else "error")


async def test_a_foreign_host_name_cannot_reach_a_local_server() -> None:
    with serving() as address:
        port = int(address.split(":")[1])
        for name, allowed in (("127.0.0.1", True), ("localhost", True), ("evil.example", False)):
            host = f"{name}:{port}"
            async with connect(
                f"ws://{host}/v1/realtime", host="127.0.0.1", port=port, origin=f"http://{host}"
            ) as client:
                event_type = json.loads(await client.recv())["type"]
                assert event_type == ("session.created" if allowed else "error")
