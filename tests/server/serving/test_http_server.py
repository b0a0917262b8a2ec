"""SIGTERM: nobody is admitted, turns finish, clients are told, and the exit status is 0. In a process of its own. And
requests that proxies read in another way, or that cannot be read at all, are refused."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from uvicorn.server import ServerState
from websockets.asyncio.client import connect

from server.serving.http_server import _WebSocketProtocol, http_config
from tests.real_time import HANG_S
from tests.server.live_server import receive, serving

PROGRAM = """
import server.openmp, logging, socket, uvicorn
from server.access.admission import Admission
from server.app import build_app
from server.context import ServerContext
from server.serving.http_server import DrainingServer
from tests.fakes import FakeLanguageModel, fake_speech_models

admission = Admission()
words = [f" word{n}" for n in range(12)]
context = ServerContext(lambda: FakeLanguageModel(words, 0.05), fake_speech_models(), "tiny", admission)
listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
config = uvicorn.Config(build_app(context), ws="websockets-sansio", log_level="error")
print(port, flush=True)
DrainingServer(config, lambda: admission.dismiss_all(20)).run([listener])
"""


async def test_sigterm_lets_turns_finish_and_exits_with_0() -> None:
    root = Path(__file__).parents[3]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, cwd=root, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(2 * HANG_S):
            url = f"ws://127.0.0.1:{int(await process.stdout.readline())}/v1/realtime"
            async with connect(url) as client:
                await client.send(json.dumps({"type": "response.create"}))
                await receive(client, "response.created")
                process.send_signal(signal.SIGTERM)
                async with connect(url) as late:
                    assert (await receive(late, "error"))["error"]["code"] == "server_shutting_down"
                assert (await receive(client, "response.done"))["response"]["status"] == "completed"
                assert (await receive(client, "error"))["error"]["code"] == "server_shutting_down"
                await client.wait_closed()
                assert client.close_code == 1012
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


HANDSHAKE = (
    b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
CHUNKED = b"transfer-encoding: chunked\r\n"


def answer_to(address: str, request: bytes) -> bytes:
    """All that the server sends before it closes the connection."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=HANG_S) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(CHUNKED + b"content-length: 5\r\n", id="two lengths of the body"),
        pytest.param(b"content-length: 5\r\n" + CHUNKED + HANDSHAKE, id="two lengths, and a handshake"),
        pytest.param(HANDSHAKE + b"x-a: " + b"a" * 9000 + b"\r\n", id="a header of a handshake above 8 KiB"),
        pytest.param(HANDSHAKE + b"".join(b"x-%d: a\r\n" % n for n in range(200)), id="200 headers of a handshake"),
        pytest.param(HANDSHAKE + CHUNKED, id="a handshake with a body"),
    ],
)
def test_a_request_that_cannot_be_read_is_refused_once_and_its_connection_ends(headers: bytes) -> None:
    with serving() as address:
        head = b"GET /v1/realtime HTTP/1.1\r\nhost: localhost\r\n" + headers + b"\r\n"
        answer = answer_to(address, head + b"0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1") == 1
        old = b"GET /healthz HTTP/1.0\r\nhost: localhost\r\n" + CHUNKED + b"\r\n0\r\n\r\n"
        assert answer_to(address, old).startswith(b"HTTP/1.1 400 ")
        assert answer_to(address, old.replace(CHUNKED, b"")).startswith(b"HTTP/1.1 200 ")


def frame(first: int, payload: bytes = b"") -> bytes:
    """A client's frame: its first byte, a short payload, and a mask of zeros."""
    return bytes([first, 0x80 | len(payload), 0, 0, 0, 0]) + payload


UPGRADE = b"GET /v1/realtime HTTP/1.1\r\nhost: localhost\r\n" + HANDSHAKE + b"\r\n"


@pytest.mark.parametrize("first", [0x00, 0x89, 0x8A], ids=["parts", "pings", "pongs"])
def test_a_flood_of_frames_closes_the_connection(first: int) -> None:
    with serving() as address:
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=HANG_S) as connection:
            connection.sendall(UPGRADE)
            answer = connection.recv(1 << 16)
            assert answer.startswith(b"HTTP/1.1 101")
            with suppress(ConnectionError):  # it is closed while the rest is being sent
                connection.sendall(frame(0x01) + frame(first) * 100_000)
                while received := connection.recv(1 << 16):
                    answer = received
                assert answer.endswith(b"\x03\xf0too many frames")  # 1008
        assert answer_to(address, b"GET /healthz HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200")


async def test_a_client_that_does_not_read_gets_one_pong_for_its_pings() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        pass

    config, transport = http_config(application), MagicMock()
    config.load()
    transport.is_closing.return_value = False
    protocol = _WebSocketProtocol(config, ServerState(), {})
    protocol.connection_made(transport)
    protocol.data_received(UPGRADE)
    protocol.conn.send_response(protocol.response)
    protocol.conn.data_to_send()
    protocol.data_received(frame(0x89, b"a"))
    assert transport.write.call_args.args == (b"\x8a\x01a",)
    transport.reset_mock()
    protocol.pause_writing()
    protocol.data_received(frame(0x89, b"b") + frame(0x89, b"c"))
    protocol.data_received(frame(0x89, b"d"))
    transport.write.assert_not_called()
    protocol.resume_writing()
    assert transport.write.call_args.args == (b"\x8a\x01d",)
    await asyncio.gather(*protocol.tasks)
