"""Runs a session with fake models on a virtual clock and records its events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import numpy as np

from agent.remote.remote_llm import RemoteLLM
from agent.tools.conversation_tools import ConversationTools
from tests.fakes import FakeLanguageModel, FakeRecognizer, FakeVoice, fake_speech_models, run_on_virtual_clock
from voice import events
from voice.playback import SessionSettings
from voice.session import VoiceSession

BLOCK_S = 0.02
E = TypeVar("E")


class SessionHarness:
    """A session, its fakes, and a log of every event with its time."""

    def __init__(
        self,
        settings: SessionSettings | None = None,
        tools: ConversationTools | None = None,
        remote: RemoteLLM | None = None,
    ) -> None:
        self.language_model, self.recognizer, self.voice = FakeLanguageModel(), FakeRecognizer(), FakeVoice()
        self.log: list[tuple[float, events.SessionEvent]] = []
        self.loop = asyncio.get_running_loop()
        speech_models = fake_speech_models(self.recognizer, self.voice)
        self.session = VoiceSession(
            self.language_model,
            speech_models,
            self.record,
            settings,
            clock=self.loop.time,
            tools=tools,
            remote=remote,
        )

    def record(self, event: events.SessionEvent) -> None:
        self.log.append((self.loop.time(), event))

    async def hear(self, seconds: float, loudness: float, rate: int = 16_000) -> None:
        for _ in range(round(seconds / BLOCK_S)):
            await asyncio.sleep(BLOCK_S)
            self.session.append(np.full(int(rate * BLOCK_S), loudness, np.float32), rate)

    async def ask_question(self, silence: float = 2.0) -> None:
        """One second of speech, then silence."""
        await self.hear(1.0, 0.5)
        await self.hear(silence, 0.0)

    def events_of(self, kind: type[E]) -> list[E]:
        return [event for _, event in self.log if isinstance(event, kind)]

    def time_of(self, kind: type[object], index: int = 0) -> float:
        return [time for time, event in self.log if isinstance(event, kind)][index]


def run_session(
    scenario: Callable[[SessionHarness], Coroutine[Any, Any, None]],
    settings: SessionSettings | None = None,
    tools: ConversationTools | None = None,
    remote: RemoteLLM | None = None,
) -> SessionHarness:
    async def run() -> SessionHarness:
        harness = SessionHarness(settings, tools, remote)
        await scenario(harness)
        await harness.session.close()
        return harness

    return run_on_virtual_clock(run)


def response_texts(harness: SessionHarness) -> list[str]:
    """The text of each response."""
    ids = [e.response_id for e in harness.events_of(events.ResponseStarted)]
    return ["".join(e.text for e in harness.events_of(events.ResponseText) if e.response_id == one) for one in ids]
