"""SIGTERM: nobody is admitted, turns finish, clients are told, and the exit status is 0. In a process of its own."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

from websockets.asyncio.client import connect

from tests.real_time import HANG_S
from tests.server.live_server import receive

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
