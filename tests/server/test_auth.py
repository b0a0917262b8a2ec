"""API keys and the origins of pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from server.access.admission import Admission
from server.access.keys import ApiKeys, KeyStore
from server.auth import WrongSecrets
from tests.real_time import HANG_S
from tests.server.live_server import connected, receive, serving


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({}, False),
        ({"additional_headers": {"Authorization": "Bearer wrong"}}, False),
        ({"additional_headers": {"Authorization": "Bearer secret"}}, True),
        ({"subprotocols": ["realtime", "openai-insecure-api-key.secret"]}, True),
        ({"subprotocols": ["realtime", "openai-insecure-api-key.wrong"]}, False),
        ({"subprotocols": ["realtime", "openai-insecure-api-key.guess", "openai-insecure-api-key.secret"]}, False),
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


def test_wrong_secrets_of_an_address_cost_it_ever_longer_pauses() -> None:
    now = 0.0
    wrong = WrongSecrets(lambda: now)
    pauses = []
    for _ in range(20):
        assert not wrong.pausing("192.0.2.1")
        wrong.add("192.0.2.1")
        begun = now
        while wrong.pausing("192.0.2.1"):
            now += 0.5
        pauses.append(now - begun)
    assert pauses == [0] * 9 + [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60]
    wrong.add("192.0.2.1")
    assert wrong.pausing("192.0.2.1") and not wrong.pausing("192.0.2.2")
    now += 4000
    wrong.add("192.0.2.1")
    assert not wrong.pausing("192.0.2.1")  # it has been forgotten


def test_an_address_of_ipv6_counts_with_all_that_its_user_has() -> None:
    wrong = WrongSecrets(lambda: 0.0)
    for number in range(10):
        wrong.add(f"2001:db8::{number}")
    assert wrong.pausing("2001:db8::ffff") and not wrong.pausing("2001:db8:0:1::1")


def test_chosen_keys_cannot_be_guessed_and_random_ones_always_work(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.sqlite")
    random = store.add("alice")
    with serving(admission=Admission(keys=ApiKeys(["chosen"], store))) as address:

        def ask(key: str) -> httpx.Response:
            headers = {"Authorization": f"Bearer {key}"}
            return httpx.post(f"http://{address}/v1/realtime/client_secrets", headers=headers, timeout=HANG_S)

        assert ask("chosen").status_code == 200
        assert [ask(f"guess-{n}").status_code for n in range(10)] == [401] * 10
        refused = ask("chosen")
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_wrong_keys")
        assert ask(random).status_code == 200
    store.close()
