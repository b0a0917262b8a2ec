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
    """Reads the server's events in the background, and keeps what the newest responses said.

    Attributes:
        responses: finished responses.
        transcript, audio_ms, item_id: of the newest response that has audio.
        calls: complete function calls.
    """

    def __init__(self, connection: Any, microphone: Microphone) -> None:
        self.connection, self.microphone = connection, microphone
        self.responses: list[Any] = []
        self.calls: list[Any] = []
        self.transcript, self.audio_ms, self.item_id, self.first_audio_at = "", 0.0, "", 0.0
        self.speech_started = 0
        self.errors: list[str] = []

    async def send_audio(self) -> None:
        async for block in self.microphone.blocks():
            await self.connection.input_audio_buffer.append(audio=base64.b64encode(block).decode())

    async def read(self) -> None:
        async for event in self.connection:
            SERVER_EVENT.validate_python(event.model_dump())
            match event.type:
                case "error":
                    self.errors.append(event.error.message)
                case "input_audio_buffer.speech_started":
                    self.speech_started += 1
                case "response.output_audio.delta":
                    if event.item_id != self.item_id:
                        self.item_id, self.audio_ms, self.first_audio_at = event.item_id, 0.0, time.monotonic()
                    self.audio_ms += len(base64.b64decode(event.delta)) / 2 / RATE * 1000
                case "response.output_audio_transcript.delta":
                    self.transcript = (self.transcript if event.item_id == self.item_id else "") + event.delta
                case "response.function_call_arguments.done":
                    self.calls.append(event)
                case "response.done":
                    self.responses.append(event.response)

    def spoken(self, count: int) -> bool:
        """Whether so many responses with a message have been completed."""
        completed = [response for response in self.responses if response.status == "completed"]
        return sum(any(item.type == "message" for item in response.output) for response in completed) >= count

    @property
    def said(self) -> str:
        """The transcript of the newest response with a message."""
        messages = [item for response in self.responses for item in response.output if item.type == "message"]
        return str(messages[-1].content[0].transcript)

    @property
    def latency_ms(self) -> float:
        """From the end of the user's recording to the first audio of the newest response."""
        return 1000 * (self.first_audio_at - self.microphone.ended_at)


async def wait_until(condition: Any, seconds: float = 40.0) -> None:
    """Wait until `condition()` is true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for belongs to the client
            await asyncio.sleep(0.02)


async def run(url: str, folder: Path) -> dict[str, Any]:
    """Hold the conversation; returns what happened."""
    client = AsyncOpenAI(api_key="none", websocket_base_url=url.replace("http", "ws") + "/v1")
    async with client.realtime.connect(model="rejoinder") as connection:
        microphone = Microphone(folder)
        talk = Conversation(connection, microphone)
        await connection.session.update(session={"type": "realtime", "instructions": INSTRUCTIONS, "tools": [TOOL]})
        await connection.session.update(session={"type": "realtime", "tool_choice": "none"})
        tasks = [asyncio.create_task(talk.send_audio()), asyncio.create_task(talk.read())]

        microphone.speak("question")
        await wait_until(lambda: talk.spoken(1))
        turn = {
            "status": talk.responses[-1].status,
            "transcript": talk.said,
            "audio_ms": talk.audio_ms,
            "latency_ms": talk.latency_ms,
        }
        await asyncio.sleep(talk.audio_ms / 1000)

        answered = talk.item_id
        microphone.speak("story")
        await wait_until(lambda: talk.item_id != answered and talk.audio_ms > 1500)
        await asyncio.sleep(1.0)
        speech, story = talk.speech_started, talk.item_id
        microphone.speak("interruption")
        await wait_until(lambda: talk.speech_started > speech)
        await connection.conversation.item.truncate(item_id=story, content_index=0, audio_end_ms=1000)
        await wait_until(lambda: talk.item_id != story and talk.responses[-1].status == "completed")
        await asyncio.sleep(talk.audio_ms / 1000 + 1.0)
        interruption = {"interrupted": True, "transcript": talk.said}

        await connection.session.update(session={"type": "realtime", "tool_choice": "required"})
        done = len(talk.responses)
        microphone.speak("weather")
        await wait_until(lambda: talk.calls and len(talk.responses) > done)
        output = {"type": "function_call_output", "call_id": talk.calls[0].call_id, "output": WEATHER}
        await connection.conversation.item.create(item=output)
        await connection.response.create()
        await wait_until(lambda: len(talk.responses) > done + 1)
        for task in tasks:
            task.cancel()
        arguments = json.loads(talk.calls[0].arguments)
        call = {"arguments": arguments, "transcript": talk.said, "latency_ms": talk.latency_ms}
        return {"turn": turn, "interruption": interruption, "call": call, "errors": talk.errors}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(sys.argv[1], Path(sys.argv[2])))))
