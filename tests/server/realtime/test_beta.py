"""Clients that speak the beta shape of the protocol."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.beta.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from server.realtime.beta import from_beta, session_from_beta, session_to_beta
from server.realtime.conversation import RealtimeConversation
from server.realtime.events import ServerEvent
from tests.fakes import FakeLanguageModel, fake_speech_models, run_on_virtual_clock
from tests.server.realtime.conversation_client import Client, one_turn
from tests.server.realtime.test_response_writer import WEATHER

BETA_SERVER_EVENT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)

SESSION = {
    "modalities": ["text", "audio"],
    "instructions": "Be brief.",
    "voice": "alloy",
    "input_audio_format": "g711_ulaw",
    "output_audio_format": "pcm16",
    "input_audio_transcription": {"model": "whisper-1"},
    "turn_detection": {"type": "server_vad", "silence_duration_ms": 400},
    "temperature": 0.8,
    "max_response_output_tokens": 200,
    "tools": [WEATHER],
    "tool_choice": "auto",
}


class BetaClient(Client):
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.language_model = FakeLanguageModel()
        models = fake_speech_models()
        self.conversation = RealtimeConversation(self.language_model, models, "tiny", self.record, beta=True)

    def record(self, event: ServerEvent) -> None:
        self.events.append(json.loads(event.model_dump_json()))


def test_a_beta_conversation_speaks_calls_and_is_valid_for_the_beta_types() -> None:
    client: BetaClient

    async def scenario() -> None:
        nonlocal client
        client = BetaClient()
        await client.send("session.update", session=SESSION | {"input_audio_format": "pcm16"})
        await one_turn(client)
        client.language_model.calls = [("get_weather", '{"city": "Oslo"}')]
        await one_turn(client)
        answer = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Sunny."}]}
        await client.send("conversation.item.create", item=answer)
        await client.send("response.create", response={"modalities": ["text"], "temperature": 0.7, "tools": []})
        await asyncio.sleep(2)
        await client.conversation.close()

    run_on_virtual_clock(scenario)
    for event in client.events:
        if "session" in event:
            del event["session"]["model"]  # the beta's types list OpenAI's own models only
        BETA_SERVER_EVENT.validate_python(event)
    types = client.types()
    new_names = ("response.output_audio", "response.output_text", "conversation.item.added", "conversation.item.done")
    assert not [kind for kind in types if kind.startswith(new_names)]
    assert {"conversation.item.created", "response.audio.delta", "response.audio_transcript.done"} <= set(types)
    assert {"response.text.delta", "response.function_call_arguments.done"} <= set(types)
    session = client.last("session.updated")["session"]
    assert session["turn_detection"]["silence_duration_ms"] == 400
    assert (session["modalities"], session["max_response_output_tokens"]) == (["text", "audio"], 200)
    done = client.last("response.done")["response"]
    assert (done["modalities"], done["output"][0]["content"][0]["type"]) == (["text"], "text")


def test_a_flat_session_keeps_its_fields_on_the_way_there_and_back() -> None:
    there = session_from_beta(SESSION)
    assert there["audio"]["input"]["format"] == {"type": "audio/pcmu"}
    back = session_to_beta(there)
    assert back == {name: value for name, value in SESSION.items() if name != "temperature"} | {"speed": None} | {
        "input_audio_noise_reduction": None
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["audio", "text", "assistant"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*SESSION, "audio", "content", "type", "role", "input"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["session.update", "conversation.item.create", "response.create"]), JSON)
def test_whatever_a_beta_client_sends_is_translated_or_passed_on(kind: str, value: Any) -> None:
    from_beta({"type": kind, "session": value, "item": value, "response": value})


def test_ga_events_and_unknown_ones_pass_unchanged() -> None:
    for event in ({"type": "input_audio_buffer.commit"}, {"type": "x"}, {}, {"type": "session.update", "session": 1}):
        assert from_beta(event) == event
