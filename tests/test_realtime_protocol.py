"""Any order of legal and illegal client events keeps the invariants of the Realtime protocol."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from server.realtime.events import ServerEvent
from tests.fakes import LoudnessDetector, VirtualLoop
from tests.server.realtime.conversation_client import Client
from tests.server.realtime.invariants import Invariants
from voice import session

WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}

CONFIGURATIONS: list[dict[str, Any]] = [
    {"tools": [WEATHER]},
    {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": True},
    {"tools": [], "tool_choice": "auto"},
    {"output_modalities": ["text"]},
    {"output_modalities": ["audio"]},
    {"audio": {"input": {"turn_detection": None}}},
    {"audio": {"input": {"turn_detection": {"type": "server_vad", "idle_timeout_ms": 5000}}}},
    {"audio": {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "high"}}}},
    {"audio": {"input": {"turn_detection": {"type": "semantic_vad", "create_response": False}}}},
    {"audio": {"output": {"voice": "other"}}},
    {"audio": {"output": {"voice": "nobody"}}},
    {"max_output_tokens": 2},
    {"max_output_tokens": "inf"},
    {"tool_choice": {"type": "function", "name": "nobody"}},
    {"colour": "blue"},
]

RESPONSES: list[dict[str, Any] | None] = [
    None,
    {"output_modalities": ["text"]},
    {"conversation": "none", "metadata": {"purpose": "test"}},
    {"conversation": "none", "input": [], "tool_choice": "none"},
    {"input": [{"type": "item_reference", "id": "nobody"}]},
    {"tools": [WEATHER], "tool_choice": "required"},
    {"tool_choice": "sometimes"},
]


class RecordingClient(Client):
    """Checks every server event as it arrives."""

    def __init__(self, checks: Invariants) -> None:
        self.checks = checks
        super().__init__()

    def record(self, event: ServerEvent) -> None:
        super().record(event)
        self.checks.check(self.events[-1])


class RealtimeProtocol(RuleBasedStateMachine):
    """A client that does anything at any time, on a virtual clock."""

    @initialize(calls=st.booleans(), text_before=st.integers(0, 3), seconds=st.sampled_from([0.0, 0.05, 0.5]))
    def connect(self, calls: bool, text_before: int, seconds: float) -> None:
        self.detector = patch.object(session, "SpeechDetector", LoudnessDetector)
        self.detector.start()
        self.loop = VirtualLoop()
        self.numbers = itertools.count()
        self.checks = Invariants()

        async def connect() -> RecordingClient:
            return RecordingClient(self.checks)

        self.client = self.run(connect())
        model = self.client.language_model
        model.seconds_per_word, model.words_before_calls = seconds, text_before
        if calls:
            model.calls = [("get_weather", '{"city": "Oslo"}'), ("get_weather", "{}")]

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def send(self, type: str, **fields: Any) -> None:
        event_id = f"evt_{next(self.numbers)}"
        self.checks.client_event_ids.add(event_id)
        self.run(self.client.send(type, event_id=event_id, **fields))

    def items(self, kind: str) -> list[dict[str, Any]]:
        events = [event for event in self.client.events if event["type"] == "conversation.item.added"]
        return [event["item"] for event in events if event["item"]["type"] == kind]

    @rule(session=st.sampled_from(CONFIGURATIONS))
    def configure(self, session: dict[str, Any]) -> None:
        self.send("session.update", session={"type": "realtime", **session})

    @rule(seconds=st.sampled_from([0.1, 0.6, 2.0]), loud=st.booleans())
    def hear(self, seconds: float, loud: bool) -> None:
        self.run(self.client.speak(seconds, 0.5 if loud else 0.0))

    @rule(
        event=st.sampled_from(["input_audio_buffer.commit", "input_audio_buffer.clear", "response.cancel", "nonsense"])
    )
    def send_without_fields(self, event: str) -> None:
        self.send(event)

    @rule(response=st.sampled_from(RESPONSES))
    def respond(self, response: dict[str, Any] | None) -> None:
        self.send("response.create", **({} if response is None else {"response": response}))

    @rule(item_id=st.sampled_from(["mine", "other", None]))
    def create_message(self, item_id: str | None) -> None:
        content = [{"type": "input_text", "text": "Hello"}]
        self.send(
            "conversation.item.create", item={"type": "message", "role": "user", "content": content, "id": item_id}
        )

    @rule(number=st.integers(0, 3))
    def answer_a_call(self, number: int) -> None:
        calls = self.items("function_call")
        call_id = calls[number % len(calls)]["call_id"] if calls else "nobody"
        item = {"type": "function_call_output", "call_id": call_id, "output": "Rain."}
        self.send("conversation.item.create", item=item)

    @rule(event=st.sampled_from(["delete", "retrieve", "truncate"]), number=st.integers(0, 5), end=st.integers(0, 500))
    def change_an_item(self, event: str, number: int, end: int) -> None:
        items = self.items("message")
        item_id = items[number % len(items)]["id"] if items else "nobody"
        fields = {"content_index": 0, "audio_end_ms": end} if event == "truncate" else {}
        self.send(f"conversation.item.{event}", item_id=item_id, **fields)

    @rule(number=st.integers(0, 5))
    def cancel_a_response(self, number: int) -> None:
        ids = [*self.checks.open_responses, "nobody"]
        self.send("response.cancel", response_id=ids[number % len(ids)])

    @rule(seconds=st.sampled_from([0.0, 0.03, 1.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    @invariant()
    def each_open_item_belongs_to_an_open_response(self) -> None:
        if hasattr(self, "client"):
            assert set(self.checks.open_items.values()) <= set(self.checks.open_responses)

    def teardown(self) -> None:
        if not hasattr(self, "client"):
            return
        self.detector.stop()
        self.send("session.update", session={"type": "realtime", "audio": {"input": {"turn_detection": None}}})
        self.run(asyncio.sleep(120.0))
        self.checks.check_end()
        self.run(self.client.conversation.close())
        self.loop.close()


RealtimeProtocol.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAnyOrderOfEventsKeepsTheInvariants = RealtimeProtocol.TestCase
