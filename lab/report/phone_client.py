"""A phone call behind the interface of a Realtime connection, so that the report measures both with the same client.

A phone call carries less information: pauses and closing marks delimit responses, a clear means that the server
detected speech, and the client cannot send the server anything but speech.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.exceptions import ConnectionClosedOK

from lab.report.measure import UNKNOWN
from lab.report.realtime_client import RealtimeClient
from lab.simulator.carriers import CARRIERS
from lab.simulator.phone import Phone, dial
from voice.audio.codec import Samples, from_pcm16, to_pcm16

TURNS_PER_CALL = 1
"""A caller cannot end a response except by speaking, so every turn is a call of its own."""


class PhoneAsRealtime:
    """One call.

    Args:
        phone: a call that has just started, without a running microphone.
    """

    def __init__(self, phone: Phone) -> None:
        self._phone = phone
        self._events: asyncio.Queue[str | None] = asyncio.Queue()
        self._response_id = ""
        phone.on_event = self._on_phone_event
        self._emit("session.created")

    async def send(self, message: str, /) -> None:
        """Handle a client event. Only audio reaches the phone call; other events are answered here or ignored."""
        event = json.loads(message)
        if event["type"] == "input_audio_buffer.append":
            await self._phone.send_audio(from_pcm16(base64.b64decode(event["audio"])))
        elif event["type"] == "session.update":
            self._emit("session.updated")

    async def recv(self) -> str:
        """The next server event. Raises ConnectionClosed when the call has ended."""
        event = await self._events.get()
        if event is None:
            raise ConnectionClosedOK(None, None)
        return event

    def _on_phone_event(self, kind: str, samples: Samples) -> None:
        match kind:
            case "sound":
                if not self._response_id:
                    self._response_id = f"resp_{self._phone.utterance}"
                    self._emit("response.created", response={"id": self._response_id})
                delta = base64.b64encode(to_pcm16(samples)).decode("ascii")
                ids = {"response_id": self._response_id, "item_id": f"item_{self._phone.utterance}"}
                self._emit("response.output_audio.delta", delta=delta, **ids)
            case "end":
                self._end_response("completed")
            case "silence":
                self._end_response(UNKNOWN)
            case "clear":
                self._emit("input_audio_buffer.speech_started")
                self._end_response("cancelled")
            case "gone":
                self._events.put_nowait(None)

    def _end_response(self, status: str) -> None:
        if self._response_id:
            self._emit("response.done", response={"id": self._response_id, "status": status})
        self._response_id = ""

    def _emit(self, kind: str, **fields: Any) -> None:
        self._events.put_nowait(json.dumps({"type": kind, **fields}))


@asynccontextmanager
async def connect_phone(url: str, carrier: str) -> AsyncIterator[RealtimeClient]:
    """A client for one phone call without a greeting. Raises ServerUnavailable."""
    simulated_carrier = CARRIERS[carrier]({"greeting": ""})
    async with dial(url, simulated_carrier, microphone=False) as phone:
        client = RealtimeClient(PhoneAsRealtime(phone), simulated_carrier.rate)
        try:
            await client.open()
            yield client
        finally:
            await client.close()
