"""The server over real sockets: who may come in, what a connection may do to the others, start-up and TLS."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from typer.testing import CliRunner
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from server import app as app_module
from server.app import ServerState, build_app
from server.cli import app as cli
from server.serving import _BIGGEST_FRAME
from server.tls import self_signed
from tests.fakes import FakeBrain, LoudnessDetector, fake_stages
from voice import session
from voice.audio import to_pcm16


class FakeEngine:
    def conversation(self) -> FakeBrain:
        return FakeBrain()


@pytest.fixture(autouse=True)
def _loudness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)


@contextmanager
def serving(tls: tuple[Path, Path] | None = None, **settings: Any) -> Iterator[str]:
    """A server on a free port of this machine; yields `host:port`."""
    state = ServerState(FakeEngine(), fake_stages(), "tiny", **settings)  # type: ignore[arg-type]
    certificate, key = (str(tls[0]), str(tls[1])) if tls else (None, None)
    config = uvicorn.Config(
        build_app(state), port=0, log_level="error", ws="websockets-sansio", ws_max_size=_BIGGEST_FRAME,
        ssl_certfile=certificate, ssl_keyfile=key, timeout_graceful_shutdown=2,
    )  # fmt: skip
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        assert not thread.is_alive()


@asynccontextmanager
async def conversation(where: str, **options: Any) -> AsyncIterator[ClientConnection]:
    async with connect(f"ws://{where}/v1/realtime?model=tiny", **options) as client:
        yield client


async def hear(client: ClientConnection, kind: str) -> dict[str, Any]:
    """The next event of a kind."""
    async with asyncio.timeout(10):
        while True:
            event: dict[str, Any] = json.loads(await client.recv())
            if event["type"] == kind:
                return event


async def ask(client: ClientConnection) -> dict[str, Any]:
    """One spoken turn as fast as the server takes it."""
    for loudness, seconds in ((0.5, 1.0), (0.0, 0.8)):
        pcm = to_pcm16(np.full(int(24_000 * seconds), loudness, np.float32))
        audio = base64.b64encode(pcm).decode()
        await client.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
    return await hear(client, "response.done")


async def test_the_page_and_the_health_check_are_served() -> None:
    with serving() as where:
        async with httpx.AsyncClient(base_url=f"http://{where}") as web:
            page, health, script = [await web.get(path) for path in ("/", "/healthz", "/app.js")]
            missing = await web.get("/../pyproject.toml")
    assert "Start talking" in page.text
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert script.headers["content-type"].startswith("text/javascript")
    assert (health.json()["status"], health.json()["model"]) == ("ok", "tiny")
    assert missing.status_code == 404


async def test_a_turn_over_a_socket() -> None:
    with serving() as where:
        async with conversation(where) as client:
            await hear(client, "session.created")
            assert (await ask(client))["response"]["status"] == "completed"


async def test_a_bad_client_does_not_disturb_the_others() -> None:
    with serving() as where:
        async with conversation(where) as good, conversation(where) as bad, conversation(where) as worse:
            await bad.send(b"\x00\xff binary")
            assert (await hear(bad, "error"))["error"]["code"] == "invalid_json"
            await bad.send("x" * (2 << 20))
            assert (await hear(bad, "error"))["error"]["code"] == "event_too_large"
            with pytest.raises(ConnectionClosed) as closed:
                await worse.send("x" * (_BIGGEST_FRAME + 1))
                await hear(worse, "never")
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
            assert (await ask(bad))["response"]["status"] == "completed"
            assert (await ask(good))["response"]["status"] == "completed"


async def test_a_client_that_goes_away_in_the_middle_is_forgotten() -> None:
    with serving() as where:
        async with conversation(where) as client:
            await client.send(json.dumps({"type": "response.create"}))
            client.transport.abort()
        async with httpx.AsyncClient(base_url=f"http://{where}") as web:
            for _ in range(100):
                if (await web.get("/healthz")).json()["conversations"] == 0:
                    return
                await asyncio.sleep(0.05)
    pytest.fail("the conversation is still counted")


async def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "_UNREAD_EVENTS", 8)
    with serving() as where:
        reader, writer = await asyncio.open_connection(*where.split(":"), limit=1 << 12)
        key = base64.b64encode(b"0123456789abcdef").decode()
        writer.write(
            f"GET /v1/realtime HTTP/1.1\r\nHost: {where}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        await writer.drain()
        update = json.dumps({"type": "session.update", "session": {"instructions": "x" * 20_000}}).encode()
        head = bytes([0x81, 0xFE]) + len(update).to_bytes(2, "big") + bytes(4)  # masked with zeros
        async with asyncio.timeout(30):
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                for _ in range(3000):  # each makes the server answer with 20 kB, which nobody reads
                    writer.write(head + update)
                    await writer.drain()
                await asyncio.sleep(1)
                while True:  # what had been sent before it gave up, then the end
                    if not await reader.read(1 << 16):
                        raise ConnectionError
        writer.close()


async def test_more_conversations_than_allowed_are_turned_away_with_a_sentence() -> None:
    with serving(most_conversations=1) as where:
        async with conversation(where) as first:
            await hear(first, "session.created")
            async with conversation(where) as second:
                error = (await hear(second, "error"))["error"]
                assert error["code"] == "too_many_conversations"
                with pytest.raises(ConnectionClosed):
                    await second.recv()
                assert second.close_code == 1013
            assert (await ask(first))["response"]["status"] == "completed"


@pytest.mark.parametrize(
    ("options", "welcome"),
    [
        ({}, False),
        ({"additional_headers": {"Authorization": "Bearer wrong"}}, False),
        ({"additional_headers": {"Authorization": "Bearer secret"}}, True),
        ({"subprotocols": ["realtime", "openai-insecure-api-key.secret"]}, True),
        ({"subprotocols": ["realtime", "openai-insecure-api-key.wrong"]}, False),
    ],
)
async def test_a_key_is_wanted_where_one_is_set(options: dict[str, Any], welcome: bool) -> None:
    with serving(api_keys=frozenset({"secret"})) as where:
        async with conversation(where, **options) as client:
            if welcome:
                await hear(client, "session.created")
            else:
                assert (await hear(client, "error"))["error"]["code"] == "invalid_api_key"
            if "subprotocols" in options:
                assert client.subprotocol == "realtime"


async def test_pages_from_elsewhere_may_not_use_a_visitors_browser() -> None:
    with serving(origins=frozenset({"https://friend.example"})) as where:
        for origin, welcome in (
            (f"http://{where}", True),
            ("https://friend.example", True),
            ("https://evil.example", False),
        ):
            async with conversation(where, origin=origin) as client:
                kind = json.loads(await client.recv())["type"]
                assert kind == ("session.created" if welcome else "error")


async def test_a_strange_name_for_this_machine_opens_no_local_server() -> None:
    with serving(local=True) as where:
        port = int(where.split(":")[1])
        for name, welcome in (("127.0.0.1", True), ("localhost", True), ("evil.example", False)):
            address = f"{name}:{port}"
            async with connect(
                f"ws://{address}/v1/realtime", host="127.0.0.1", port=port, origin=f"http://{address}"
            ) as client:
                kind = json.loads(await client.recv())["type"]
                assert kind == ("session.created" if welcome else "error")


async def test_a_self_signed_certificate_serves_the_page_and_is_kept(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    assert key.stat().st_mode & 0o077 == 0
    assert self_signed(tmp_path) == (certificate, key)
    made = certificate.read_bytes()
    trusted = ssl.create_default_context(cafile=str(certificate))
    with serving(tls=(certificate, key)) as where:
        async with httpx.AsyncClient(base_url=f"https://{where}", verify=trusted) as web:
            assert (await web.get("/healthz")).json()["status"] == "ok"
    self_signed(tmp_path)
    assert certificate.read_bytes() == made


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, list(arguments), env={"COLUMNS": "400", "NO_COLOR": "1"})
    return result.exit_code, " ".join(result.output.split())


def test_a_port_in_use_is_said_before_any_model_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = run("serve", "--port", str(taken.getsockname()[1]), "--model", "/no/such.gguf")
    assert code == 1
    assert "is in use: stop what uses it, or choose another with --port" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ask", "hi", "--model", "/no/such.gguf"], "there is no model at /no/such.gguf"),
        (["ask", "hi", "--model", "gpt9"], "known models are qwen2.5-coder-0.5b"),
        (["ask", "--wav", "/no/such.wav"], "there is no file /no/such.wav"),
        (["models", "pull", "gpt9"], "no model is called 'gpt9'"),
        (["models", "verify", "gpt9"], "no model is called 'gpt9'"),
        (["serve", "--host", "no.such.host.invalid"], "is no address of this machine"),
    ],
)
def test_the_command_line_says_what_is_wrong_in_a_sentence(arguments: list[str], said: str) -> None:
    code, output = run(*arguments)
    assert code == 1
    assert said in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    "arguments",
    [
        ["ask"],
        ["ask", "hi", "--wav", "x.wav"],
        ["serve", "--tls-cert", "x"],
        ["serve", "--port", "70000"],
        ["serve", "--api-key", "a/b="],
        ["dance"],
    ],
)
def test_wrong_usage_is_told_apart(arguments: list[str]) -> None:
    assert run(*arguments)[0] == 2


def test_what_is_no_wav_file_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    path.write_bytes(b"this is no sound")
    assert "is not a PCM WAV file" in run("ask", "--wav", str(path))[1]


def test_the_models_are_listed_with_licence_and_authors() -> None:
    code, said = run("models", "list")
    assert code == 0
    for word in ("qwen2.5-coder-0.5b", "Apache-2.0", "whisper-base", "OpenAI", "MIT", "en_US-joe-medium", "CC0"):
        assert word in said


def test_talking_without_sound_hardware_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "sounddevice", None)
    code, said = run("talk")
    assert code == 1
    assert "PortAudio is missing: install it" in said
