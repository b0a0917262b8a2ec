"""A client of a `RealtimeConversation`, without a socket and on a virtual clock."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from agent.documents.search import SharedDocuments
from agent.language_model import LanguageModel
from agent.tools.server_tools import ServerTools
from server.access.admission import Slot
from server.context import ServerContext
from server.observability.observers import TurnObservers
from server.observability.turn_log import TurnRecord
from server.realtime.conversation import RealtimeConversation
from server.realtime.events import ServerEvent
from server.realtime.session_config import SessionConfig
from tests.fakes import FakeLanguageModel, FakeRecognizer, fake_speech_models, run_on_virtual_clock
from voice.audio.codec import to_pcm16
from voice.speech_models import SpeechModels

OPENAI_SERVER_EVENT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)


def new_conversation(
    language_model: LanguageModel,
    speech_models: SpeechModels,
    send: Callable[[ServerEvent], None],
    config: SessionConfig | None = None,
    slot: Slot | None = None,
    **context: Any,
) -> RealtimeConversation:
    """A conversation of a server with these models. `context` are fields of its `ServerContext`."""
    shared = ServerContext(lambda: language_model, speech_models, "tiny", **context)
    return RealtimeConversation(shared, slot or shared.admission.reserve("realtime"), send, config)


class Client:
    """Sends client events and records the server events."""

    def __init__(
        self,
        tools: ServerTools | None = None,
        documents: SharedDocuments | None = None,
        config: SessionConfig | None = None,
        observe: Callable[[TurnRecord], None] | None = None,
    ) -> None:
        self.events: list[dict[str, Any]] = []
        self.language_model = FakeLanguageModel()
        self.recognizer = FakeRecognizer()
        self.speech_models = fake_speech_models(self.recognizer)
        self.conversation = new_conversation(
            self.language_model,
            self.speech_models,
            self.record,
            config,
            tools=tools,
            documents=documents,
            observers=TurnObservers([observe] if observe is not None else []),
        )

    def record(self, event: ServerEvent) -> None:
        self.events.append(json.loads(event.model_dump_json()))

    async def send(self, type: str, **fields: Any) -> None:
        await self.conversation.receive(json.dumps({"type": type, **fields}))

    async def configure(self, **session: Any) -> None:
        await self.send("session.update", session={"type": "realtime", **session})

    async def speak(self, seconds: float, loudness: float, rate: int = 24_000) -> None:
        for _ in range(round(seconds / 0.02)):
            await asyncio.sleep(0.02)
            pcm = to_pcm16(np.full(rate // 50, loudness, np.float32))
            await self.send("input_audio_buffer.append", audio=base64.b64encode(pcm).decode())

    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def last(self, type: str) -> dict[str, Any]:
        return [event for event in self.events if event["type"] == type][-1]

    @property
    def error(self) -> dict[str, Any]:
        """The error in the newest event."""
        assert self.events[-1]["type"] == "error", self.events[-1]
        error: dict[str, Any] = self.events[-1]["error"]
        return error


def hold_conversation(
    scenario: Callable[[Client], Coroutine[Any, Any, None]],
    tools: ServerTools | None = None,
    documents: SharedDocuments | None = None,
    config: SessionConfig | None = None,
) -> Client:
    async def run() -> Client:
        client = Client(tools, documents, config)
        await scenario(client)
        await client.conversation.close()
        return client

    return run_on_virtual_clock(run)


def check_against_openai(events: list[dict[str, Any]]) -> None:
    """Every event is valid for the SDK's type of its name."""
    for event in events:
        if not event["type"].startswith("rejoinder."):
            OPENAI_SERVER_EVENT.validate_python(event, strict=False)


async def one_turn(client: Client) -> None:
    await client.speak(1.0, 0.5)
    await client.speak(3.0, 0.0)
