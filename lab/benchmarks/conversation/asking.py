"""Asks in voice sessions whose voice writes down what it would pronounce."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from agent.instructions import INSTRUCTIONS
from agent.tools.server_tools import ServerTools, ToolSettings
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from voice import events
from voice.audio.codec import OUTPUT_RATE
from voice.history import Item
from voice.lexicon import NO_LEXICON
from voice.playback import SessionSettings
from voice.pronunciation import Pronunciation
from voice.session import VoiceSession
from voice.speech_models import SpeechModels
from voice.tts import Voice, Voices

_MAX_TOKENS = 400
"""Of an answer: ten times what a listener wants, so that what is too long shows."""


@dataclass(frozen=True)
class Said:
    """One answer.

    Attributes:
        text: as it stands in the conversation.
        spoken: what the voice got of it, clause by clause.
        policies: what decided.
    """

    text: str
    spoken: tuple[str, ...]
    policies: tuple[str, ...]


AskTurns = Callable[[Sequence[str], Sequence[str]], Coroutine[Any, Any, tuple[Said, ...]]]
"""Asks the turns of a conversation that began with some messages, user and assistant in turn."""


@dataclass
class _Listener:
    """A voice that writes down what it gets. See `voice.tts.Voice`."""

    sample_rate: int = OUTPUT_RATE
    speaks_english: bool = True
    heard: list[str] = field(default_factory=list)

    def pronounce(self, text: str, speed: float) -> Pronunciation:
        """Silence, so that nobody waits for the playback."""
        self.heard.append(text)
        return Pronunciation(np.zeros(240, np.float32), (), np.zeros(0))


def listening() -> tuple[SpeechModels, _Listener]:
    """Speech models without recognition, whose voice writes down what it would pronounce."""
    listener, voice = _Listener(), Voice.__new__(Voice)
    vars(voice).update(name="listener", _synthesizer=listener, _lexicon=NO_LEXICON)
    models = SpeechModels(
        cast(Any, None),
        cast(Any, None),
        Voices([voice]),
        cast(Any, None),
        ThreadPoolExecutor(1),
        ThreadPoolExecutor(1),
        ThreadPoolExecutor(1),
    )
    return models, listener


@asynccontextmanager
async def asking(engine: Engine) -> AsyncIterator[AskTurns]:
    """Asks in sessions with the built-in tools, as the page has them, each with timers and notes of its own."""
    with tempfile.TemporaryDirectory() as folder:
        tools = ServerTools(ToolSettings(data=Path(folder)))

        async def ask(before: Sequence[str], turns: Sequence[str]) -> tuple[Said, ...]:
            own = tools.conversation()
            own.enable(tools.registry)
            models, listener = listening()
            received: asyncio.Queue[events.SessionEvent] = asyncio.Queue()
            settings = SessionSettings(
                instructions=INSTRUCTIONS, detect_turns=False, max_tokens=_MAX_TOKENS, tools=own.declarations
            )
            session = VoiceSession(Conversation(engine), models, received.put_nowait, settings, tools=own)
            said = []
            try:
                for number, text in enumerate(before):
                    role = "assistant" if number % 2 else "user"
                    session.history.add(Item(f"before-{number}", role, text, spoken=False, complete=True))
                for number, turn in enumerate(turns):
                    session.history.add(Item(f"turn-{number}", "user", turn, spoken=False, complete=True))
                    listener.heard.clear()
                    session.respond()
                    while not isinstance(done := await received.get(), events.ResponseDone):
                        pass
                    policies = tuple(decision.policy for decision in done.metrics.decided)
                    said.append(Said(done.item.text.strip(), tuple(listener.heard), policies))
            finally:
                await session.close()
                own.close()
            return tuple(said)

        async with tools.running():
            yield ask
