"""Short-lived keys for browsers, over real sockets."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from openai.types.realtime import ClientSecretCreateResponse

from server.budgets import Budget
from server.realtime import client_secrets
from server.realtime.client_secrets import ClientSecrets
from server.realtime.session_config import SessionConfig
from tests.server.live_server import connected, receive, serving


async def test_a_secret_opens_a_session_with_its_configuration() -> None:
    with serving(api_keys=frozenset({"secret"})) as address:
        async with httpx.AsyncClient(base_url=f"http://{address}/v1/realtime") as web:
            session = {"type": "realtime", "instructions": "Be brief."}
            body = {"session": session, "expires_after": {"anchor": "created_at", "seconds": 60}}
            assert (await web.post("/client_secrets", json=body)).status_code == 401
            web.headers["Authorization"] = "Bearer secret"
            created = (await web.post("/client_secrets", json=body)).json()
        ClientSecretCreateResponse.model_validate(created)
        assert created["session"]["instructions"] == "Be brief."
        protocols = ["realtime", f"openai-insecure-api-key.{created['value']}"]
        async with connected(address, subprotocols=protocols) as client:
            assert (await receive(client, "session.created"))["session"]["instructions"] == "Be brief."
        async with connected(address, subprotocols=["realtime", "openai-insecure-api-key.ek_forged"]) as client:
            assert (await receive(client, "error"))["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"session": {"instructions": 1}}, "session.instructions"),
        ({"session": {"colour": 1}}, "session.colour"),
        ({"session": {"audio": {"output": {"voice": "nobody"}}}}, "session.audio.output.voice"),
        (
            {"session": {"audio": {"input": {"transcription": {"language": "xx"}}}}},
            "session.audio.input.transcription.language",
        ),
        ({"session": {"tools": [{"type": "function", "name": "f", "parameters": {"type": "array"}}]}}, "session.tools"),
        (
            {"session": {"tools": [{"type": "mcp", "server_label": "x", "server_url": "https://evil.example"}]}},
            "session.tools.0.server_url",
        ),
        ({"expires_after": {"seconds": 1}}, "expires_after.seconds"),
        ({"colour": 1}, "colour"),
    ],
)
async def test_an_invalid_request_names_the_field(body: dict[str, Any], param: str) -> None:
    with serving() as address:
        async with httpx.AsyncClient() as web:
            answer = await web.post(f"http://{address}/v1/realtime/client_secrets", json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_a_secret_expires_and_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_secrets, "CLIENT_SECRETS", Budget(4000, 7200.0))
    now = 1000.0
    secrets = ClientSecrets(lambda: now)
    first = await secrets.create(SessionConfig(), 60)
    assert first.expires_at == 1060
    others = [await secrets.create(SessionConfig(), 600) for _ in range(2)]
    assert [await secrets.find([one.value]) is not None for one in (first, *others)] == [False, True, True]
    now += 601
    assert await secrets.find([others[0].value]) is None
