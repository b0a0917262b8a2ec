"""pipecat's OpenAIRealtimeLLMService in a pipeline: a spoken turn, an interruption, and a function call whose result is
spoken.

    python pipecat_client.py http://HOST:PORT FOLDER
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from loguru import logger
from pipecat.frames.frames import (
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    EndFrame,
    ErrorFrame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMRunFrame,
    OutputAudioRawFrame,
    StartFrame,
    TTSTextFrame,
)
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.realtime.events import SessionProperties
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.transports.base_input import BaseInputTransport
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner

sys.path.insert(0, str(Path(__file__).parent))
from recordings import INSTRUCTIONS, RATE, WEATHER, Microphone

PARAMS = TransportParams(
    audio_in_enabled=True, audio_in_sample_rate=RATE, audio_out_enabled=True, audio_out_sample_rate=RATE
)


class Ear(BaseInputTransport):
    """The user's microphone."""

    def __init__(self, microphone: Microphone) -> None:
        super().__init__(PARAMS)
        self._microphone = microphone
        self._sending: asyncio.Task[None] | None = None

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)
        self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        async for block in self._microphone.blocks():
            await self.push_audio_frame(InputAudioRawFrame(block, RATE, 1))

    async def cleanup(self) -> None:
        await super().cleanup()
        if self._sending is not None:
            self._sending.cancel()


class Speaker(BaseOutputTransport):
    """A loudspeaker that plays in real time."""

    def __init__(self) -> None:
        super().__init__(PARAMS)
        self.played_ms = 0.0

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        seconds = len(frame.audio) / 2 / frame.sample_rate
        self.played_ms += 1000 * seconds
        await asyncio.sleep(seconds)
        return True


class Observer(BaseObserver):
    """Notes what passes through the pipeline."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[int, str] = {}
        self.bot_speaking = False
        self.stops = self.interruptions = 0
        self.errors: list[str] = []
        self._seen: set[int] = set()

    async def on_push_frame(self, data: FramePushed) -> None:
        frame = data.frame
        if frame.id in self._seen:
            return
        self._seen.add(frame.id)
        match frame:
            case TTSTextFrame():
                self.texts[self.stops] = self.texts.get(self.stops, "") + frame.text
            case BotStartedSpeakingFrame():
                self.bot_speaking = True
            case BotStoppedSpeakingFrame():
                self.stops += self.bot_speaking
                self.bot_speaking = False
            case InterruptionFrame():
                self.interruptions += 1
            case ErrorFrame():
                self.errors.append(frame.error)


async def wait_until(condition: Any, seconds: float = 40.0) -> None:
    """Wait until `condition()` is true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for belongs to the client
            await asyncio.sleep(0.02)


async def run(url: str, folder: Path) -> dict[str, Any]:
    """Hold the conversation; returns what happened."""
    microphone, speaker, seen = Microphone(folder), Speaker(), Observer()
    calls: list[str] = []

    async def get_weather(params: FunctionCallParams, city: str) -> None:
        """The weather in a city now.

        Args:
            city: the city
        """
        calls.append(city)
        await params.result_callback(WEATHER)

    def properties(tool_choice: Any) -> SessionProperties:
        return SessionProperties(instructions=INSTRUCTIONS, tool_choice=tool_choice)

    service = OpenAIRealtimeLLMService(
        api_key="none",
        base_url=url.replace("http", "ws") + "/v1/realtime",
        settings=OpenAIRealtimeLLMService.Settings(session_properties=properties("none")),
    )
    context = LLMContext([{"role": "user", "content": "Say hello."}], tools=[get_weather])
    user, assistant = LLMContextAggregatorPair(context)
    worker = PipelineWorker(
        Pipeline([Ear(microphone), user, service, speaker, assistant]),
        params=PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=RATE),
        observers=[seen],
        cancel_on_idle_timeout=False,
    )

    started = asyncio.Event()

    @worker.event_handler("on_pipeline_started")
    async def on_pipeline_started(worker: PipelineWorker, frame: StartFrame) -> None:
        started.set()

    async def talk() -> dict[str, Any]:
        await started.wait()  # earlier frames are dropped
        await worker.queue_frame(LLMRunFrame())
        await wait_until(lambda: seen.stops == 1)
        played_ms = speaker.played_ms

        microphone.speak("question")
        await wait_until(lambda: seen.stops == 2)
        turn = {"status": "completed", "transcript": seen.texts[1], "audio_ms": speaker.played_ms - played_ms}

        microphone.speak("story")
        await wait_until(lambda: seen.bot_speaking)
        await asyncio.sleep(1.5)
        before = seen.interruptions
        microphone.speak("interruption")
        await wait_until(lambda: seen.interruptions > before)
        await wait_until(lambda: seen.stops == 4)
        interruption = {"interrupted": True, "transcript": seen.texts[3]}

        await service._update_settings(OpenAIRealtimeLLMService.Settings(session_properties=properties("required")))
        await asyncio.sleep(0.5)
        microphone.speak("weather")
        await wait_until(lambda: len(calls) > 0 and seen.stops == 5)
        call = {"arguments": {"city": calls[0]}, "transcript": seen.texts[4]}
        await worker.queue_frame(EndFrame())
        return {"turn": turn, "interruption": interruption, "call": call, "errors": seen.errors}

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    try:
        return await talk()
    finally:
        await worker.cancel()
        await asyncio.wait([running], timeout=5)


if __name__ == "__main__":
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    print(json.dumps(asyncio.run(run(sys.argv[1], Path(sys.argv[2])))))
