"""The official Python client: a spoken turn, an interruption, and a function call whose result is spoken.

python openai_client.py http://HOST:PORT FOLDER
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

sys.path.insert(0, str(Path(__file__).parent))
from recordings import INSTRUCTIONS, RATE, WEATHER, Microphone

SERVER_EVENT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)

TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city now",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


class Conversation:
    """Reads events until a response is done, and keeps what it said."""

    def __init__(self, connection: Any, microphone: Microphone) -> None:
        self.connection, self.microphone = connection, microphone
        self.transcript, self.audio_ms, self.item_id, self.first_audio_at = "", 0.0, "", 0.0
        self.calls: list[Any] = []

    async def send_audio(self) -> None:
        async for block in self.microphone.blocks():
            await self.connection.input_audio_buffer.append(audio=base64.b64encode(block).decode())

    async def response(self, *, stop_after_ms: float | None = None) -> Any:
        """The next finished response, or None once `stop_after_ms` of its audio has arrived."""
        self.transcript, self.audio_ms = "", 0.0
        async for event in self.connection:
            SERVER_EVENT.validate_python(event.model_dump())
            match event.type:
                case "error":
                    raise RuntimeError(event.error.message)
                case "response.output_audio.delta":
                    if not self.audio_ms:
                        self.first_audio_at = time.monotonic()
                    self.audio_ms += len(base64.b64decode(event.delta)) / 2 / RATE * 1000
                    self.item_id = event.item_id
                    if stop_after_ms is not None and self.audio_ms >= stop_after_ms:
                        return None
                case "response.output_audio_transcript.delta":
                    self.transcript += event.delta
                case "response.function_call_arguments.done":
                    self.calls.append(event)
                case "response.done":
                    return event.response
        raise RuntimeError("the connection was closed")

    @property
    def latency_ms(self) -> float:
        """From the end of the user's recording to the first audio of the newest response."""
        return 1000 * (self.first_audio_at - self.microphone.ended_at)

    async def wait_for(self, event_type: str) -> Any:
        """The next event of a type."""
        async for event in self.connection:
            if event.type == "error":
                raise RuntimeError(event.error.message)
            if event.type == event_type:
                return event
        raise RuntimeError("the connection was closed")


async def run(url: str, folder: Path) -> dict[str, Any]:
    """Hold the conversation; returns what happened."""
    client = AsyncOpenAI(api_key="none", websocket_base_url=url.replace("http", "ws") + "/v1")
    async with client.realtime.connect(model="rejoinder") as connection:
        microphone = Microphone(folder)
        conversation = Conversation(connection, microphone)
        await connection.session.update(session={"type": "realtime", "instructions": INSTRUCTIONS, "tools": [TOOL]})
        sending = asyncio.create_task(conversation.send_audio())
        await connection.session.update(session={"type": "realtime", "tool_choice": "none"})

        microphone.speak("question")
        done = await conversation.response()
        turn = {
            "status": done.status,
            "transcript": conversation.transcript,
            "audio_ms": conversation.audio_ms,
            "latency_ms": conversation.latency_ms,
        }

        microphone.speak("story")
        await conversation.response(stop_after_ms=1500)
        item_id, heard_ms = conversation.item_id, 1000
        await asyncio.sleep(heard_ms / 1000)
        microphone.speak("interruption")
        await conversation.wait_for("input_audio_buffer.speech_started")
        await connection.conversation.item.truncate(item_id=item_id, content_index=0, audio_end_ms=heard_ms)
        await conversation.wait_for("conversation.item.truncated")
        await conversation.response()
        interruption = {"interrupted": True, "transcript": conversation.transcript}

        await connection.session.update(session={"type": "realtime", "tool_choice": "required"})
        microphone.speak("weather")
        await conversation.response()
        (call,) = conversation.calls
        output = {"type": "function_call_output", "call_id": call.call_id, "output": WEATHER}
        await connection.conversation.item.create(item=output)
        await connection.response.create()
        await conversation.response()
        sending.cancel()
        return {
            "turn": turn,
            "interruption": interruption,
            "call": {
                "arguments": json.loads(call.arguments),
                "transcript": conversation.transcript,
                "latency_ms": conversation.latency_ms,
            },
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(sys.argv[1], Path(sys.argv[2])))))
