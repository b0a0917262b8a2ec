"""livekit-plugins-openai's RealtimeModel in an AgentSession: a spoken turn, an interruption, and a function call whose
result is spoken.

    python livekit_client.py http://HOST:PORT FOLDER
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from livekit import rtc
from livekit.agents import Agent, AgentSession, function_tool
from livekit.agents.voice import io
from livekit.plugins import openai

sys.path.insert(0, str(Path(__file__).parent))
from recordings import INSTRUCTIONS, RATE, WEATHER, Microphone


class Ear(io.AudioInput):
    """The user's microphone."""

    def __init__(self, microphone: Microphone) -> None:
        super().__init__(label="microphone")
        self._blocks = microphone.blocks()

    async def __anext__(self) -> rtc.AudioFrame:
        block = await self._blocks.__anext__()
        return rtc.AudioFrame(block, RATE, 1, len(block) // 2)


class Speaker(io.AudioOutput):
    """A loudspeaker that plays in real time and reports what was played."""

    def __init__(self) -> None:
        super().__init__(label="loudspeaker", capabilities=io.AudioOutputCapabilities(pause=False), sample_rate=RATE)
        self.played_s = 0.0
        self._segment_s, self._started = 0.0, 0.0
        self._finishing: asyncio.TimerHandle | None = None

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        if not self._segment_s:
            self._started = time.monotonic()
            self.on_playback_started(created_at=time.time())
        self._segment_s += frame.duration

    def flush(self) -> None:
        super().flush()
        if self._segment_s:
            left = self._started + self._segment_s - time.monotonic()
            self._finishing = asyncio.get_running_loop().call_later(max(0.0, left), self._finish, False)

    def clear_buffer(self) -> None:
        if self._segment_s:
            self._finish(True)

    def _finish(self, interrupted: bool) -> None:
        if self._finishing is not None:
            self._finishing.cancel()
            self._finishing = None
        position = min(self._segment_s, time.monotonic() - self._started)
        self._segment_s = 0.0
        self.played_s += position
        self.on_playback_finished(playback_position=position, interrupted=interrupted)


class Assistant(Agent):
    """An agent with one function."""

    def __init__(self) -> None:
        super().__init__(instructions=INSTRUCTIONS)
        self.calls: list[str] = []

    @function_tool
    async def get_weather(self, city: str) -> str:
        """The weather in a city now.

        Args:
            city: the city
        """
        self.calls.append(city)
        return WEATHER


async def wait_until(condition: Any, seconds: float = 40.0) -> None:
    """Wait until `condition()` is true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for belongs to the client
            await asyncio.sleep(0.02)


async def run(url: str, folder: Path) -> dict[str, Any]:
    """Hold the conversation; returns what happened."""
    microphone, speaker, agent = Microphone(folder), Speaker(), Assistant()
    model = openai.realtime.RealtimeModel(base_url=f"{url}/v1", api_key="none", tool_choice="none")
    messages: list[Any] = []
    errors: list[str] = []
    async with AgentSession(llm=model) as session:
        session.on("conversation_item_added", lambda event: messages.append(event.item))
        session.on("error", lambda event: errors.append(str(event.error)))
        session.input.audio, session.output.audio = Ear(microphone), speaker
        await session.start(agent)
        await asyncio.sleep(1.0)

        def answers() -> list[Any]:
            return [m for m in messages if getattr(m, "role", "") == "assistant"]

        microphone.speak("question")
        await wait_until(lambda: answers())
        turn = {"status": "completed", "transcript": answers()[-1].text_content, "audio_ms": speaker.played_s * 1000}

        microphone.speak("story")
        await wait_until(lambda: session.agent_state == "speaking")
        await asyncio.sleep(1.5)
        microphone.speak("interruption")
        await wait_until(lambda: len(answers()) >= 3)
        story, answer = answers()[1:3]
        interruption = {"interrupted": story.interrupted, "transcript": answer.text_content}

        await wait_until(lambda: session.agent_state == "listening")
        model.update_options(tool_choice="required")
        for open_session in model._sessions:
            open_session.update_options(tool_choice="required")
        await asyncio.sleep(0.5)
        microphone.speak("weather")
        await wait_until(lambda: agent.calls and len(answers()) >= 4)
        call = {"arguments": {"city": agent.calls[0]}, "transcript": answers()[-1].text_content}
        return {"turn": turn, "interruption": interruption, "call": call, "errors": errors}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(sys.argv[1], Path(sys.argv[2])))))
