"""What documents add to a spoken turn: the same questions, with and without documents, in turn."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from benchmarks.documents.evaluation import Question
from server.documents.grounded_model import Documents, GroundedLanguageModel
from voice import events
from voice.audio.codec import OUTPUT_RATE, Samples
from voice.clauses import Clause
from voice.language_model import LanguageModel
from voice.session import Session
from voice.speech_models import SpeechModels

_BLOCK_S = 0.02
_SETTLE_S = 1.0
"""From the start of a session to the question: the instructions are read in it."""


async def ask_aloud(model: LanguageModel, models: SpeechModels, question: Samples) -> events.ResponseDone:
    """Ask one question, [T] at 24 kHz in real time, in a session of its own."""
    done: asyncio.Future[events.ResponseDone] = asyncio.get_running_loop().create_future()

    def on_event(event: events.SessionEvent) -> None:
        if isinstance(event, events.ResponseDone) and event.status == "completed" and not done.done():
            done.set_result(event)

    session = Session(model, models, on_event)
    await asyncio.sleep(_SETTLE_S)
    recording, size = np.concatenate((question, np.zeros(20 * OUTPUT_RATE, np.float32))), int(_BLOCK_S * OUTPUT_RATE)
    loop = asyncio.get_running_loop()
    began = loop.time()
    for n in range(len(recording) // size):
        if done.done():
            break
        session.append(recording[n * size : (n + 1) * size], OUTPUT_RATE)
        await asyncio.sleep(began + (n + 1) * _BLOCK_S - loop.time())
    response = await done
    await session.close()
    return response


async def compare(
    model: LanguageModel, models: SpeechModels, questions: Sequence[Question], documents: Documents
) -> dict[str, list[float]]:
    """The latency of the questions with and without documents, in ms. The order alternates."""
    latencies: dict[str, list[float]] = defaultdict(list)
    voice = models.voices.default
    for number, question in enumerate(questions):
        audio = voice.synthesize(Clause(question.text, True))
        sides = {"with documents": documents, "without": None}
        for name in list(sides)[:: 1 if number % 2 else -1]:
            response = await ask_aloud(GroundedLanguageModel(model.fork(), sides[name]), models, audio)
            latency = response.metrics.latency_ms()
            if latency is not None:
                latencies[name].append(latency)
                cached = f"{response.metrics.cached_tokens} of {response.metrics.prompt_tokens} tokens cached"
                print(f"{name}: {question.text} {latency:.0f} ms, {cached} → {response.item.text.strip()}", flush=True)
    return latencies
