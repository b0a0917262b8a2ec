"""A phone call that looks like a Realtime connection, so that the report measures both with the same client.

A telephone knows less: which sound belongs to which answer is told by its pauses and closing marks, that the server
heard somebody speak by its clears, and nothing can be asked of the server but by speaking.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.exceptions import ConnectionClosedOK

from server.calling.carriers import CARRIERS
from server.calling.phone import Phone, dialling
from server.report.client import Call
from voice.audio import Samples, from_pcm16, to_pcm16

TURNS_PER_CALL = 1
"""A telephone cannot cut an answer short without being heard, so every turn is a call of its own."""


class CallAsRealtime:
    """One call.

    Args:
        phone: at its beginning; its microphone must not run.
    """

    def __init__(self, phone: Phone) -> None:
        self._phone = phone
        self._events: asyncio.Queue[str | None] = asyncio.Queue()
        self._response = ""
        phone.told = self._told
        self._tell("session.created")

    async def send(self, message: str, /) -> None:
        """Take a client event. Only sound goes to a telephone; the rest is answered here or has no meaning."""
        event = json.loads(message)
        if event["type"] == "input_audio_buffer.append":
            await self._phone.speak(from_pcm16(base64.b64decode(event["audio"])))
        elif event["type"] == "session.update":
            self._tell("session.updated")

    async def recv(self) -> str:
        """The next server event. Raises ConnectionClosed once the call is over."""
        event = await self._events.get()
        if event is None:
            raise ConnectionClosedOK(None, None)
        return event

    def _told(self, kind: str, samples: Samples) -> None:
        match kind:
            case "sound":
                if not self._response:
                    self._response = f"resp_{self._phone.stretch}"
                    self._tell("response.created", response={"id": self._response})
                delta = base64.b64encode(to_pcm16(samples)).decode("ascii")
                where = {"response_id": self._response, "item_id": f"item_{self._phone.stretch}"}
                self._tell("response.output_audio.delta", delta=delta, **where)
            case "end":
                self._finish("completed")
            case "clear":
                self._tell("input_audio_buffer.speech_started")
                self._finish("cancelled")
            case "gone":
                self._events.put_nowait(None)

    def _finish(self, status: str) -> None:
        if self._response:
            self._tell("response.done", response={"id": self._response, "status": status})
        self._response = ""

    def _tell(self, kind: str, **fields: Any) -> None:
        self._events.put_nowait(json.dumps({"type": kind, **fields}))


@asynccontextmanager
async def phoning(url: str, carrier: str) -> AsyncIterator[Call]:
    """A call as the report's client takes it, its greeting left out. Raises NoServer."""
    line = CARRIERS[carrier]({"greeting": ""})
    async with dialling(url, line, microphone=False) as phone:
        call = Call(CallAsRealtime(phone), line.rate)
        try:
            await call.open()
            yield call
        finally:
            await call.close()
