"""Answers as the page gives them: of a session that has the built-in tools, without audio."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True)
class SessionAnswer:
    """The answer to one turn, and the policy of the planner that decided on it: for what a tool says, the one that
    called the tool."""

    text: str
    policy: str


AskSession = Callable[[Sequence[str], int], Coroutine[Any, Any, list[SessionAnswer]]]
"""Asks the turns of a conversation, with a maximum length of the responses, and returns the answers."""


@asynccontextmanager
async def session_answers(engine: Engine, speech_models: SpeechModels, instructions: str) -> AsyncIterator[AskSession]:
    """Asks in sessions, each with timers and notes of its own, which are forgotten."""
    with tempfile.TemporaryDirectory() as folder:
        tools = ServerTools(ToolSettings(data=Path(folder)))

        async def ask(turns: Sequence[str], max_tokens: int) -> list[SessionAnswer]:
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
) -> list[SessionAnswer]:
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
            policies = [decision.policy for decision in done.metrics.decided if decision.policy != "output"]
            answers.append(SessionAnswer(done.item.text.strip(), policies[-1] if policies else ""))
    finally:
        await session.close()
    return answers
