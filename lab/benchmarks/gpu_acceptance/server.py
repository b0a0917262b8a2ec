"""Real weights: the whole server with callers that all speak at the same time, until the first audio of a response.

With the installed speech models the callers ask recorded questions. Without them, recognition and synthesis cost
nothing, so that what is left is the server and the language model."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from lab.benchmarks.gpu_acceptance.answers import holds
from lab.benchmarks.gpu_acceptance.context import Context, NotPossibleHere
from lab.benchmarks.gpu_acceptance.weights import models, precision
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import load_model

_TURNS, _TOKENS = 3, 40

_WAIT_S = 60.0
"""No response takes as long; a caller gives up then."""


def run(context: Context, callers: int) -> None:
    """Run the stage with so many callers."""
    for path in models(context):
        context.check(f"{path.stem}: {callers} callers", lambda p=path: crowd(context, str(p), callers))


def crowd(context: Context, path: str, callers: int) -> Mapping[str, Any]:
    """Serve a model, and call it from another process."""
    try:
        from tests import fakes
        from tests.server.live_server import serving
        from voice import session
    except ImportError as error:
        raise NotPossibleHere(f"the server needs a package that is not installed ({error})") from None
    from pathlib import Path

    model = load_model(Path(path), device=str(context.device), precision=precision(context))
    slots = callers if context.on_gpu else min(callers, 4)
    engine = Engine(lambda: model, context=1024, max_slots=slots)
    with ExitStack() as stack:
        stack.callback(engine.close)
        speech = speech_models(context)
        if speech is None:
            stack.enter_context(patch.object(session, "SpeechDetector", fakes.LoudnessDetector))
        address = stack.enter_context(
            serving(
                new_language_model=lambda: Conversation(engine),
                speech_models=speech or fakes.fake_speech_models(),
                max_conversations=callers,
                engine=engine,
            )
        )
        turns = _TURNS if context.on_gpu else 1
        command = [sys.executable, "-m", __name__, address, str(callers), str(turns), str(int(speech is not None))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    holds(done.returncode == 0, lambda: f"the callers failed: {done.stderr.strip()[-300:]}")
    times = sorted(json.loads(done.stdout))
    holds(len(times) == callers * turns, lambda: f"{len(times)} of {callers * turns} turns were answered")
    return {
        "first audio ms, p50": times[len(times) // 2] * 1e3,
        "p95": times[int(len(times) * 0.95)] * 1e3,
        "speech models": speech is not None,
        "turns": len(times),
    }


def speech_models(context: Context) -> Any:
    """The installed speech models on this device; None on a CPU, where the acceptance itself is checked, and if there
    are none."""
    if not context.on_gpu:
        return None
    try:
        from lab.benchmarks.gpu_acceptance.speech import located
        from voice.speech_device import SpeechDevice
        from voice.speech_models import load_speech_models

        recognizer, voice = located()
    except (ImportError, NotPossibleHere):
        return None
    return load_speech_models(recognizer, [voice], SpeechDevice.of("auto"))


async def call(address: str, callers: int, turns: int, recorded: bool) -> list[float]:
    """Seconds from the end of each question to the first audio of its response."""
    import numpy as np
    from websockets.asyncio.client import ClientConnection, connect

    from voice.audio.codec import OUTPUT_RATE, RECOGNITION_RATE, to_pcm16
    from voice.audio.resampling import resample
    from voice.trial import recorded_questions

    questions = [np.full(OUTPUT_RATE // 2, 0.5, np.float32)]
    if recorded:
        questions = [resample(audio, RECOGNITION_RATE, OUTPUT_RATE) for audio in recorded_questions()]
    audio = [base64.b64encode(to_pcm16(question)).decode() for question in questions]

    async def receive(client: ClientConnection, kind: str) -> Mapping[str, Any]:
        async with asyncio.timeout(_WAIT_S):
            while (event := json.loads(await client.recv()))["type"] != kind:
                if event["type"] == "error":
                    raise RuntimeError(str(event["error"]))
            return dict(event)

    async def caller(number: int, ready: asyncio.Barrier) -> list[float]:
        times = []
        url = f"ws://{address}/v1/realtime?model=tiny"
        async with connect(url, open_timeout=_WAIT_S, compression=None, max_size=None) as client:
            update = {"type": "realtime", "audio": {"input": {"turn_detection": None}}, "max_output_tokens": _TOKENS}
            await client.send(json.dumps({"type": "session.update", "session": update}))
            await receive(client, "session.updated")
            for turn in range(turns):
                await ready.wait()
                append = {"type": "input_audio_buffer.append", "audio": audio[(number + turn) % len(audio)]}
                await client.send(json.dumps(append))
                began = time.perf_counter()
                await client.send(json.dumps({"type": "input_audio_buffer.commit"}))
                await client.send(json.dumps({"type": "response.create"}))
                await receive(client, "response.output_audio.delta")
                times.append(time.perf_counter() - began)
                await receive(client, "response.done")
        return times

    ready = asyncio.Barrier(callers)
    found = await asyncio.gather(*(caller(number, ready) for number in range(callers)))
    return [one for times in found for one in times]


if __name__ == "__main__":
    address, *numbers = sys.argv[1:]
    callers, turns, recorded = map(int, numbers)
    print(json.dumps(asyncio.run(call(address, callers, turns, bool(recorded)))))
