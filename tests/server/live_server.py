"""A server on a free port of this machine, and clients for it."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from websockets.asyncio.client import ClientConnection, connect

from agent.language_model import LanguageModel
from server.access.admission import Admission
from server.access.keys import ApiKeys
from server.app import build_app
from server.context import ServerContext
from server.serving.http_server import http_config
from server.telephony.routes import TelephonySettings
from tests.fakes import FakeLanguageModel, fake_speech_models
from tests.real_time import HANG_S
from voice.audio.codec import to_pcm16


@contextmanager
def serving(
    tls: tuple[Path, Path] | None = None,
    new_language_model: Callable[[], LanguageModel] = FakeLanguageModel,
    api_keys: frozenset[str] = frozenset(),
    max_conversations: int = 16,
    telephony: TelephonySettings | None = None,
    **settings: Any,
) -> Iterator[str]:
    """Runs a server on a free port of this machine; yields `host:port`."""
    settings.setdefault("admission", Admission(max_conversations, ApiKeys(api_keys)))
    settings.setdefault("speech_models", fake_speech_models())
    context = ServerContext(new_language_model=new_language_model, model="tiny", **settings)
    certificate, key = (str(tls[0]), str(tls[1])) if tls else (None, None)
    config = http_config(build_app(context, telephony), certificate, key)
    config.timeout_graceful_shutdown = 2
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=HANG_S)
        assert not thread.is_alive()


@asynccontextmanager
async def connected(address: str, **options: Any) -> AsyncIterator[ClientConnection]:
    async with connect(f"ws://{address}/v1/realtime?model=tiny", open_timeout=HANG_S, **options) as client:
        yield client


async def receive(client: ClientConnection, event_type: str) -> dict[str, Any]:
    """The next event of a type."""
    async with asyncio.timeout(HANG_S):
        while True:
            event: dict[str, Any] = json.loads(await client.recv())
            if event["type"] == event_type:
                return event


async def speak_one_turn(client: ClientConnection, loudness: float = 0.5) -> dict[str, Any]:
    """Send one spoken turn as fast as the server accepts it; returns its `response.done`."""
    for level, seconds in ((loudness, 1.0), (0.0, 0.8)):
        pcm = to_pcm16(np.full(int(24_000 * seconds), level, np.float32))
        audio = base64.b64encode(pcm).decode()
        await client.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
    return await receive(client, "response.done")
