"""What is said of servers that cannot be reached, over real sockets."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.report.realtime_client import connect_realtime
from lab.simulator.errors import ServerUnavailable
from server.serving.tls import self_signed
from tests.server.live_server import serving


async def failure(url: str) -> str:
    with pytest.raises(ServerUnavailable) as caught:
        async with connect_realtime(url):
            pass
    return str(caught.value)


async def test_a_wrong_path_and_a_wrong_scheme_are_named() -> None:
    with serving() as address:
        assert "are the path and the key right?" in await failure(f"ws://{address}/v1/nothing")
        assert "does it need ws:// instead of wss://?" in await failure(f"wss://{address}/v1/realtime")


async def test_a_certificate_that_cannot_be_verified_is_named(tmp_path: Path) -> None:
    with serving(tls=self_signed(tmp_path)) as address:
        assert "SSL_CERT_FILE" in await failure(f"wss://{address}/v1/realtime")


async def test_a_secret_in_the_query_is_not_repeated() -> None:
    for address in ("ws://127.0.0.1:9/phone", "nonsense"):
        message = await failure(f"{address}?secret=hidden")
        assert address in message and "hidden" not in message
