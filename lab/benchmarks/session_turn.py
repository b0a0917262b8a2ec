"""One spoken turn in a session of its own, in this process. `spoken_turn` takes one over a socket."""

from __future__ import annotations

import asyncio

import numpy as np

from agent.documents.evidence import DocumentEvidence
from agent.language_model import LanguageModel
from agent.tools.conversation_tools import ConversationTools
from voice import events
from voice.audio.codec import OUTPUT_RATE, Samples
from voice.playback import SessionSettings
from voice.session import VoiceSession
from voice.speech_models import SpeechModels

_BLOCK_S = 0.02

_SETTLE_S = 1.0
"""From the start of a session to the question: the prompt is read in it."""

_SILENCE_S = 20
"""How long an answer is waited for."""


async def ask_aloud(
    model: LanguageModel,
    models: SpeechModels,
    question: Samples,
    settings: SessionSettings | None = None,
    tools: ConversationTools | None = None,
    documents: DocumentEvidence | None = None,
) -> events.ResponseDone:
    """Ask one question, [T] at 24 kHz, in real time.

    Raises:
        TimeoutError: no response was completed.
    """
    done: asyncio.Future[events.ResponseDone] = asyncio.get_running_loop().create_future()

    def on_event(event: events.SessionEvent) -> None:
        if isinstance(event, events.ResponseDone) and event.status == "completed" and not done.done():
            done.set_result(event)

    session = VoiceSession(model, models, on_event, settings, tools=tools, documents=documents)
    try:
        await asyncio.sleep(_SETTLE_S)
        silence = np.zeros(_SILENCE_S * OUTPUT_RATE, np.float32)
        recording, size = np.concatenate((question, silence)), int(_BLOCK_S * OUTPUT_RATE)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for n in range(len(recording) // size):
            if done.done():
                break
            session.append(recording[n * size : (n + 1) * size], OUTPUT_RATE)
            await asyncio.sleep(began + (n + 1) * _BLOCK_S - loop.time())
        return await asyncio.wait_for(done, _SILENCE_S)
    finally:
        await session.close()
