"""Answers as the page gives them: of a session that has the built-in tools, without audio."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agent.language_model import LanguageModel
from agent.tools.conversation_tools import ConversationTools
from agent.tools.server_tools import ServerTools, ToolSettings
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from voice import events
from voice.history import Item
from voice.playback import SessionSettings
from voice.session import VoiceSession
from voice.speech_models import SpeechModels

AskSession = Callable[[Sequence[str], int], Coroutine[Any, Any, tuple[str, ...]]]
"""Asks the turns of a conversation, with a maximum length of the responses, and returns the answers."""


@asynccontextmanager
async def session_answers(engine: Engine, speech_models: SpeechModels, instructions: str) -> AsyncIterator[AskSession]:
    """Asks in sessions, each with timers and notes of its own, which are forgotten."""
    with tempfile.TemporaryDirectory() as folder:
        tools = ServerTools(ToolSettings(data=Path(folder)))

        async def ask(turns: Sequence[str], max_tokens: int) -> tuple[str, ...]:
            own = tools.conversation()
            own.enable(tools.registry)
            try:
                model = Conversation(engine)
                return await ask_session(model, speech_models, own, turns, instructions, max_tokens)
            finally:
                own.close()

        async with tools.running():
            yield ask


async def ask_session(
    language_model: LanguageModel,
    speech_models: SpeechModels,
    tools: ConversationTools,
    turns: Sequence[str],
    instructions: str,
    max_tokens: int,
) -> tuple[str, ...]:
    """The answers of one session. A response that fails is an empty answer."""
    received: asyncio.Queue[events.SessionEvent] = asyncio.Queue()
    settings = SessionSettings(
        instructions=instructions, detect_turns=False, speak=False, max_tokens=max_tokens, tools=tools.declarations
    )
    session, answers = VoiceSession(language_model, speech_models, received.put_nowait, settings, tools=tools), []
    try:
        for number, turn in enumerate(turns):
            session.history.add(Item(f"turn-{number}", "user", turn, spoken=False, complete=True))
            session.respond()
            while not isinstance(done := await received.get(), events.ResponseDone):
                pass
            answers.append(done.item.text.strip())
    finally:
        await session.close()
    return tuple(answers)
