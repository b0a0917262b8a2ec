"""Baseline for latency comparisons: pipecat with the same models, served over the Realtime protocol.

    pip install "pipecat-ai[silero,whisper,piper,websocket,openai]==1.14.0" "llama-cpp-python[server]==0.3.36"
    python lab/benchmarks/pipecat_server.py --whisper DIR --piper VOICE.onnx --llm FILE.gguf --port 8765

Realtime clients can then connect to ws://127.0.0.1:8765/v1/realtime; llama.cpp listens on the next port. It needs an
environment of its own. Tested with Python 3.11, faster-whisper 1.2.1, ctranslate2 4.8.5, piper-tts 1.8.0,
onnxruntime 1.31.1.

The pipeline is the one that `pipecat create` writes for a cascade over a websocket, with pipecat's own services and
their defaults:

- Silero VAD: confidence 0.7, start 0.2 s, stop 0.2 s, volume 0.6. Voice activity or a transcript starts a turn
  and interrupts.
- End of turn: Smart Turn v3.2 (bundled, one thread) and the final transcript; otherwise after 3 s of silence; 5 s at
  most.
- WhisperSTTService: each VAD segment followed by 0.5 s of silence, in English, `WhisperModel.transcribe` with its
  defaults (beam size 5, padded to 30 s). Set here: the folder, device cpu, int8.
- OLLamaLLMService (for local servers with the OpenAI protocol): streaming, with the server's sampling and length.
- PiperTTSService, in process: whole sentences, resampled to 24 kHz.
- FastAPIWebsocketTransport: 40 ms of audio at a time, in real time. Pipecat's stream resampler converts the client's
  audio to 16 kHz, pipecat's default, as in its telephony serializers.

Changes in pipecat's favour: Whisper and Piper are loaded once for all connections, every model runs once before the
port opens, and llama-cpp-python's server decodes on all cores, with logits for the last token only. Its default
(`--stock-llama`) decodes on half the cores and computes all logits, which may suit a shared machine.

Besides audio it handles response.cancel; session.update and conversation.item.truncate are acknowledged without effect.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import functools
import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvicorn
from fastapi import FastAPI, WebSocket
from loguru import logger
from pipecat.audio.turn.smart_turn.local_smart_turn_v3 import LocalSmartTurnAnalyzerV3
from pipecat.audio.utils import create_stream_resampler
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.frames import frames
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor, FrameProcessorSetup
from pipecat.serializers.base_serializer import FrameSerializer
from pipecat.services.ollama.llm import OLLamaLLMService
from pipecat.services.piper import tts as piper_tts
from pipecat.services.piper.tts import PiperTTSService
from pipecat.services.whisper import stt as whisper_stt
from pipecat.services.whisper.stt import WhisperSTTService
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from pipecat.workers.runner import WorkerRunner

SYSTEM = (
    "You are a friendly voice assistant. Everything you write is spoken aloud. "
    "Answer in one or two short sentences of plain spoken English. "
    "Never use lists, markdown, code, symbols or emoji. Say numbers the way people say them. "
    "If you do not know, say so."
)
"""Rejoinder's own instructions (agent/instructions.py) without the name."""
# Both services load their model for each pipeline; the cache makes only the first one load it.
whisper_stt.WhisperModel = functools.cache(whisper_stt.WhisperModel)  # type: ignore[misc]
piper_tts.PiperVoice.load = functools.cache(piper_tts.PiperVoice.load)  # type: ignore[method-assign]


class RealtimeSerializer(FrameSerializer):
    """The Realtime protocol on one connection, with the response in progress."""

    def __init__(self, websocket: WebSocket) -> None:
        super().__init__()
        self._websocket = websocket
        self._resampler = create_stream_resampler()
        self._rate, self._user_item, self._item, self._response, self.transcript = 0, "", "", "", ""

    async def setup(self, setup: FrameProcessorSetup) -> None:
        self._rate = setup.audio_in_sample_rate

    async def send(self, kind: str, **fields: Any) -> None:
        await self._websocket.send_text(json.dumps({"type": kind, "event_id": _new_id("event"), **fields}))

    async def deserialize(self, data: str | bytes) -> frames.Frame | None:
        event = json.loads(data)
        match event.get("type"):
            case "input_audio_buffer.append":
                audio = base64.b64decode(event["audio"])
                audio = await self._resampler.resample(audio, 24_000, self._rate)
                return frames.InputAudioRawFrame(audio, self._rate, 1) if audio else None
            case "response.cancel":
                return frames.InterruptionFrame()
            case "session.update":
                await self.send("session.updated", session=event["session"])
            case "conversation.item.truncate":
                await self.send("conversation.item.truncated", item_id=event.get("item_id"))
        return None

    async def serialize(self, frame: frames.Frame) -> str | None:
        """Called by pipecat's output transport with audio in real time, and with interruptions."""
        if isinstance(frame, frames.InterruptionFrame):
            await self.end_response("cancelled")
        elif isinstance(frame, frames.OutputAudioRawFrame):
            await self.begin_response()  # in case an audio frame comes first
            ids = {"response_id": self._response, "item_id": self._item, "output_index": 0, "content_index": 0}
            await self.send("response.output_audio.delta", delta=base64.b64encode(frame.audio).decode(), **ids)
        return None

    async def begin_turn(self, *_: object) -> None:
        self._user_item = _new_id("item")
        await self.send("input_audio_buffer.speech_started", item_id=self._user_item)

    async def end_turn(self, _aggregator: object, _strategy: object, message: Any) -> None:
        await self.send("input_audio_buffer.speech_stopped", item_id=self._user_item)
        kind = "conversation.item.input_audio_transcription.completed"
        await self.send(kind, transcript=message.content or "", content_index=0, item_id=self._user_item)

    async def begin_response(self) -> None:
        if not self._response:
            self._response, self._item, self.transcript = _new_id("resp"), _new_id("item"), ""
            await self.send("response.created", response=self._object("in_progress"))

    async def end_response(self, status: str) -> None:
        if self._response:
            done, self._response = self._object(status), ""
            await self.send("response.done", response=done)

    def _object(self, status: str) -> dict[str, Any]:
        content = [{"type": "audio", "transcript": self.transcript.strip()}]
        item = {"id": self._item, "type": "message", "role": "assistant", "status": status, "content": content}
        return {"id": self._response, "object": "realtime.response", "status": status, "output": [item]}


class ResponseTracker(FrameProcessor):
    """Follows the output transport, where a frame arrives once the audio before it has been written."""

    def __init__(self, client: RealtimeSerializer) -> None:
        super().__init__()
        self._client = client

    async def process_frame(self, frame: frames.Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, frames.LLMFullResponseStartFrame):
            await self._client.begin_response()
        elif isinstance(frame, frames.TTSTextFrame):
            self._client.transcript += frame.text + " "
        elif isinstance(frame, frames.LLMFullResponseEndFrame):
            await self._client.end_response("completed")
        await self.push_frame(frame, direction)


def services(options: argparse.Namespace) -> tuple[WhisperSTTService, OLLamaLLMService, PiperTTSService]:
    """New pipecat services for one pipeline, with the given models."""
    stt_settings = WhisperSTTService.Settings(model=str(options.whisper))
    llm_settings = OLLamaLLMService.Settings(model="local", system_instruction=SYSTEM)
    tts_settings = PiperTTSService.Settings(voice=options.piper.stem)
    stt = WhisperSTTService(device="cpu", compute_type="int8", settings=stt_settings)
    llm = OLLamaLLMService(base_url=f"http://127.0.0.1:{options.port + 1}/v1", settings=llm_settings)
    return stt, llm, PiperTTSService(download_dir=options.piper.parent, settings=tts_settings)


async def warm_up(options: argparse.Namespace) -> None:
    """Run every model once, after the language model's server has started."""
    async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(retries=8), timeout=60) as client:
        (await client.get(f"http://127.0.0.1:{options.port + 1}/v1/models")).raise_for_status()
    stt, llm, tts = services(options)
    await llm.run_inference(LLMContext([{"role": "user", "content": "Hello."}]))
    noise = np.random.default_rng(0).normal(0, 0.1, 48_000).astype(np.float32)
    list(stt._model.transcribe(noise, language="en")[0])
    list(tts._voice.synthesize("Hello, how are you?"))
    LocalSmartTurnAnalyzerV3(sample_rate=16_000)._predict_endpoint(noise)


async def converse(websocket: WebSocket, options: argparse.Namespace) -> None:
    """Run a pipeline for one connection until the client disconnects."""
    client = RealtimeSerializer(websocket)
    params = FastAPIWebsocketParams(audio_in_enabled=True, audio_out_enabled=True, serializer=client)
    transport = FastAPIWebsocketTransport(websocket, params)
    vad_params = LLMUserAggregatorParams(vad_analyzer=SileroVADAnalyzer())
    user, assistant = LLMContextAggregatorPair(LLMContext(), user_params=vad_params)
    stt, llm, tts = services(options)
    processors = [transport.input(), stt, user, llm, tts, transport.output(), ResponseTracker(client), assistant]
    worker, runner = PipelineWorker(Pipeline(processors)), WorkerRunner(handle_sigint=False)

    async def on_started(*_: object) -> None:
        await client.send("session.created", session={"type": "realtime", "model": "pipecat"})

    async def on_disconnected(*_: object) -> None:
        await runner.cancel()

    worker.add_event_handler("on_pipeline_started", on_started)
    user.add_event_handler("on_user_turn_started", client.begin_turn)
    user.add_event_handler("on_user_turn_stopped", client.end_turn)
    transport.add_event_handler("on_client_disconnected", on_disconnected)
    await runner.add_workers(worker)
    await runner.run()


def _new_id(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex[:20]}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve pipecat over the Realtime protocol on 127.0.0.1.")
    parser.add_argument("--whisper", type=Path, required=True, help="folder of a CTranslate2 Whisper model")
    parser.add_argument("--piper", type=Path, required=True, help="a Piper voice: an .onnx file with its .onnx.json")
    parser.add_argument("--llm", type=Path, required=True, help="a GGUF file")
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--stock-llama", action="store_true", help="run llama-cpp-python's server with its defaults")
    parser.add_argument("--log", default="WARNING", help="log level of pipecat; DEBUG shows every stage of a turn")
    options = parser.parse_args()
    logger.remove()
    logger.add(sys.stderr, level=options.log)

    # SIGTERM must run the finally block below, which stops llama.cpp's server.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    command = [sys.executable, "-m", "llama_cpp.server", "--host", "127.0.0.1", "--port", str(options.port + 1)]
    command += ["--model", str(options.llm)]
    command += [] if options.stock_llama else ["--n_threads", str(os.cpu_count()), "--logits_all", "False"]
    llama = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        asyncio.run(warm_up(options))
        app = FastAPI()

        @app.websocket("/v1/realtime")
        async def realtime(websocket: WebSocket) -> None:
            await websocket.accept()
            await converse(websocket, options)

        print(f"ws://127.0.0.1:{options.port}/v1/realtime", flush=True)
        uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning")
    finally:
        llama.terminate()
        llama.wait(timeout=20)


if __name__ == "__main__":
    main()
