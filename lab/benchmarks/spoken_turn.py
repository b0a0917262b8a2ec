"""One spoken turn in a conversation of its own, over loopback. Several benchmarks take such turns.

The latency is from the last sample of the question to the first audible sample of the answer.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from agent.background_tasks import cancel
from lab.report.corpus import bounds_ms
from lab.simulator.microphone import Microphone
from lab.simulator.player import Player
from model.hub.store import ModelStore
from server.serving.options import DEFAULT_VOICE
from voice.audio.codec import Samples, from_pcm16, to_pcm16
from voice.clauses import Clause
from voice.tts import Voice

_SETTLE_S = 1.5
"""From the configuration of a session to the question: a person takes longer to speak, and the server reads ahead."""

_TIMEOUT_S = 20.0

_LISTEN_S = 0.7
"""How long the answer is listened to. The rest does not matter, and leaves the processor for the next turn."""


@dataclass(frozen=True)
class SpokenTurn:
    """One turn. Times are ms after the last sample of the question.

    Attributes:
        called_ms: when a function call was complete; None if there was none.
        latency_ms: when the answer became audible.
        answer: what it began with.
    """

    called_ms: float | None
    latency_ms: float
    answer: str


class _Client:
    """Speaks one question, and returns the results of calls at once."""

    def __init__(self, socket: ClientConnection, output: str) -> None:
        self._socket, self._output = socket, output
        self.player, self.audible, self.answer = Player(), asyncio.Event(), ""
        self.called_at: float | None = None
        self.event_types: list[str] = []
        self._must_respond = False

    async def send(self, type: str, **fields: Any) -> None:
        await self._socket.send(json.dumps({"type": type, **fields}))

    async def send_audio(self, block: Samples) -> None:
        await self.send("input_audio_buffer.append", audio=base64.b64encode(to_pcm16(block)).decode())

    async def read(self) -> None:
        async for frame in self._socket:
            now, event = time.monotonic(), json.loads(frame)
            self.event_types.append(event["type"])
            match event["type"]:
                case "error":
                    raise RuntimeError(event["error"]["message"])
                case "response.function_call_arguments.done":
                    self.called_at, self._must_respond = now, True
                    item = {"type": "function_call_output", "call_id": event["call_id"], "output": self._output}
                    await self.send("conversation.item.create", item=item)
                case "response.done" if self._must_respond:
                    self._must_respond = False
                    await self.send("response.create")
                case "response.output_audio.delta":
                    samples = from_pcm16(base64.b64decode(event["delta"]))
                    if self.player.push(now, event["response_id"], event["item_id"], samples).audible is not None:
                        self.audible.set()
                case "response.output_audio_transcript.delta":
                    self.answer += event["delta"]


def record(texts: Iterable[str]) -> dict[str, Samples]:
    """Recordings of questions, in the default voice."""
    voice = Voice(ModelStore(hub=False).locate(DEFAULT_VOICE))
    return {text: voice.synthesize(Clause(text, True)) for text in texts}


async def speak(url: str, recording: Samples, session: dict[str, Any], output: str = "") -> SpokenTurn:
    """Ask a question.

    Args:
        session: fields of the session.
        output: what functions that the model calls return.

    Raises:
        RuntimeError: the server reported an error.
        TimeoutError: no answer came.
    """
    async with connect(url, max_size=None, compression=None) as socket:
        client = _Client(socket, output)
        microphone = Microphone(client.send_audio)
        await client.send("session.update", session={"type": "realtime", **session})
        tasks = [asyncio.create_task(client.read()), asyncio.create_task(microphone.run())]
        try:
            await asyncio.sleep(_SETTLE_S)
            start = await microphone.play(recording)
            audible = asyncio.create_task(client.audible.wait())
            await asyncio.wait([audible, *tasks], timeout=_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
            if not client.audible.is_set():
                audible.cancel()
                for task in tasks:
                    if task.done():
                        task.result()
                raise TimeoutError(f"no answer, only {client.event_types}")
            await asyncio.sleep(_LISTEN_S)
        finally:
            await cancel(tasks)
    speech_end = start + bounds_ms(recording)[1] / 1000
    first_audible = client.player.first_audible()
    assert first_audible is not None
    called_ms = None if client.called_at is None else 1000 * (client.called_at - speech_end)
    return SpokenTurn(called_ms, 1000 * (first_audible - speech_end), client.answer.strip())
