"""The Realtime protocol: order and shape of events, and every kind of bad input, without a socket."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from server.protocol import ServerEvent
from server.realtime import MAX_EVENT_BYTES, RealtimeConversation
from tests.fakes import FakeBrain, LoudnessDetector, fake_stages, virtually
from voice import session
from voice.audio import Encoding, decode, encode, to_pcm16

THEIRS: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
EXTENSIONS = ["rejoinder.draft", "rejoinder.phase", "rejoinder.transcript", "rejoinder.turn"]


@pytest.fixture(autouse=True)
def _loudness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)


class Client:
    """The other side of a conversation."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.brain = FakeBrain()
        self.conversation = RealtimeConversation(self.brain, fake_stages(), "tiny", self.take)

    def take(self, event: ServerEvent) -> None:
        self.events.append(json.loads(event.model_dump_json()))

    async def send(self, type: str, **fields: Any) -> None:
        await self.conversation.receive(json.dumps({"type": type, **fields}))

    async def configure(self, **session: Any) -> None:
        await self.send("session.update", session={"type": "realtime", **session})

    async def hear(self, seconds: float, loudness: float, rate: int = 24_000) -> None:
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
        """The error that the newest event is."""
        assert self.events[-1]["type"] == "error", self.events[-1]
        error: dict[str, Any] = self.events[-1]["error"]
        return error


def talk(work: Callable[[Client], Coroutine[Any, Any, None]]) -> Client:
    async def run() -> Client:
        client = Client()
        await work(client)
        await client.conversation.close()
        return client

    return virtually(run)


def check_against_openai(events: list[dict[str, Any]]) -> None:
    """Every event is one of the SDK's own types with all of its required fields."""
    for event in events:
        if not event["type"].startswith("rejoinder."):
            THEIRS.validate_python(event, strict=False)


async def one_turn(client: Client) -> None:
    await client.hear(1.0, 0.5)
    await client.hear(3.0, 0.0)


def test_a_voice_turn_sends_the_events_that_clients_wait_for_in_their_order() -> None:
    client = talk(one_turn)
    check_against_openai(client.events)
    order = list(dict.fromkeys(client.types()))
    assert order == [
        "session.created",
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.input_audio_transcription.delta",
        "conversation.item.input_audio_transcription.completed",
        "response.created",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.done",
    ]
    user = client.last("input_audio_buffer.committed")["item_id"]
    assert client.last("conversation.item.added")["previous_item_id"] == user
    done = client.last("response.done")["response"]
    assert done["status"] == "completed"
    assert done["output"][0]["content"][0]["transcript"] == "The capital of France is Paris."
    assert done["usage"]["input_token_details"]["cached_tokens"] == 20
    ids = [event["event_id"] for event in client.events]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(("rate", "seconds"), [(24_000, 0.6), (16_000, 0.6)])
def test_the_answers_audio_has_its_length_at_either_rate(rate: int, seconds: float) -> None:
    async def work(client: Client) -> None:
        await client.configure(audio={"output": {"format": {"type": "audio/pcm", "rate": rate}}})
        await one_turn(client)

    client = talk(work)
    deltas = [event["delta"] for event in client.events if event["type"] == "response.output_audio.delta"]
    assert sum(len(base64.b64decode(delta)) for delta in deltas) == pytest.approx(2 * rate * seconds, abs=8)


@pytest.mark.parametrize("rate", [8_000, 16_000, 48_000])
def test_microphones_at_other_rates_are_understood(rate: int) -> None:
    async def work(client: Client) -> None:
        await client.configure(audio={"input": {"format": {"type": "audio/pcm", "rate": rate}}})
        await client.hear(1.0, 0.5, rate)
        await client.hear(2.0, 0.0, rate)

    assert "response.done" in talk(work).types()


@pytest.mark.parametrize("kind", ["pcmu", "pcma"])
def test_a_telephones_sound_is_understood_and_answered_in_kind(kind: Encoding) -> None:
    async def work(client: Client) -> None:
        sound = {"format": {"type": f"audio/{kind}"}}
        await client.configure(audio={"input": sound, "output": sound})
        for loudness, blocks in ((0.5, 50), (0.0, 150)):
            for _ in range(blocks):
                await asyncio.sleep(0.02)
                data = encode(np.full(160, loudness, np.float32), kind)
                await client.send("input_audio_buffer.append", audio=base64.b64encode(data).decode())

    client = talk(work)
    assert client.last("session.updated")["session"]["audio"]["input"]["format"] == {"type": f"audio/{kind}"}
    assert client.last("response.created")["response"]["audio"]["output"]["format"] == {"type": f"audio/{kind}"}
    deltas = [event["delta"] for event in client.events if event["type"] == "response.output_audio.delta"]
    sound = b"".join(base64.b64decode(delta) for delta in deltas)
    assert len(sound) == pytest.approx(4800, abs=4)  # 0.6 s, a byte a sample
    assert np.abs(decode(sound, kind)).max() > 0.3
    check_against_openai(client.events)


def test_extension_events_come_only_to_those_who_ask() -> None:
    async def asking(client: Client) -> None:
        await client.configure(include=EXTENSIONS)
        await one_turn(client)

    assert not [kind for kind in talk(one_turn).types() if kind.startswith("rejoinder.")]
    client = talk(asking)
    assert {kind for kind in client.types() if kind.startswith("rejoinder.")} == set(EXTENSIONS)
    turn = client.last("rejoinder.turn")
    del turn["stages_ms"]["end_of_turn"]  # runs beside the others
    assert turn["latency_ms"] == pytest.approx(sum(turn["stages_ms"].values()), abs=1)
    assert (turn["guesses"], turn["guess_kept"]) == (1, True)


def test_interrupting_cancels_the_response_with_the_protocols_reason() -> None:
    async def work(client: Client) -> None:
        client.brain.words = [f" word{n}" for n in range(60)]
        client.brain.pace = 0.1
        await client.hear(1.0, 0.5)
        await client.hear(2.0, 0.0)
        await client.hear(0.5, 0.5)

    client = talk(work)
    done = client.last("response.done")["response"]
    assert (done["status"], done["status_details"]["reason"]) == ("cancelled", "turn_detected")
    assert (
        client.types().index("response.done")
        > [n for n, kind in enumerate(client.types()) if kind == "input_audio_buffer.speech_started"][1]
    )
    assert client.last("response.output_item.done")["item"]["status"] == "incomplete"
    check_against_openai(client.events)


def test_push_to_talk() -> None:
    async def work(client: Client) -> None:
        await client.configure(audio={"input": {"turn_detection": None}})
        await client.hear(1.0, 0.5)
        await client.send("input_audio_buffer.commit")
        await client.send("response.create", response={"metadata": {"mine": "1"}})
        await asyncio.sleep(3)

    client = talk(work)
    assert client.last("response.done")["response"]["metadata"] == {"mine": "1"}
    assert "input_audio_buffer.speech_started" not in client.types()
    check_against_openai(client.events)


def test_a_written_conversation() -> None:
    async def work(client: Client) -> None:
        await client.configure(output_modalities=["text"], instructions="Be brief.")
        content = [{"type": "input_text", "text": "Hello"}]
        item = {"type": "message", "role": "user", "id": "mine", "content": content}
        await client.send("conversation.item.create", item=item)
        await client.send("response.create")
        await asyncio.sleep(2)
        await client.send("conversation.item.retrieve", item_id="mine")
        await client.send("conversation.item.delete", item_id="mine")

    client = talk(work)
    assert client.last("response.output_text.done")["text"] == "The capital of France is Paris."
    assert "response.output_audio.delta" not in client.types()
    assert client.last("conversation.item.retrieved")["item"]["content"][0]["text"] == "Hello"
    assert [m.content for m in client.brain.prompts[0]] == ["Be brief.", "Hello"]
    check_against_openai(client.events)


def test_truncating_cuts_what_the_model_remembers() -> None:
    async def work(client: Client) -> None:
        await one_turn(client)
        item = client.last("response.output_item.done")["item"]["id"]
        await client.send("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=405)
        await client.send("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=99_000)
        assert client.error["param"] == "audio_end_ms"
        await client.send("conversation.item.retrieve", item_id=item)

    client = talk(work)
    assert client.last("conversation.item.truncated")["audio_end_ms"] == 405
    said = client.last("conversation.item.retrieved")["item"]["content"][0]["transcript"]
    assert said == "The capital of France"
    check_against_openai(client.events)


def test_a_session_update_is_merged_and_the_whole_session_comes_back() -> None:
    async def work(client: Client) -> None:
        await client.configure(audio={"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 700}}})
        await client.configure(instructions="Be brief.", audio={"output": {"speed": 1.2, "voice": "marin"}})

    client = talk(work)
    updated = client.last("session.updated")["session"]
    assert updated["audio"]["input"]["turn_detection"]["silence_duration_ms"] == 700
    assert (updated["instructions"], updated["audio"]["output"]["speed"]) == ("Be brief.", 1.2)
    assert updated["audio"]["output"]["voice"] == "fake"  # what is in force, not what was wished for
    assert client.conversation.session.settings.rules.timing.end_silence_ms == 700
    check_against_openai(client.events)


def test_semantic_vad_and_its_eagerness_are_understood() -> None:
    async def work(client: Client) -> None:
        await client.configure(audio={"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "high"}}})

    client = talk(work)
    assert client.last("session.updated")["session"]["audio"]["input"]["turn_detection"]["type"] == "semantic_vad"
    rules = client.conversation.session.settings.rules
    assert rules.timing.longest_wait_ms == 450 and not rules.by_silence


@pytest.mark.parametrize(
    ("frame", "code", "param", "said"),
    [
        ("{nonsense", "invalid_json", None, "not JSON"),
        ("[1, 2]", "invalid_json", None, "JSON object"),
        ("{}", "missing_required_parameter", "type", "must have a type"),
        ('{"type": "dance"}', "unknown_event", "type", "dance"),
        ('{"type": "input_audio_buffer.append"}', "missing_required_parameter", "audio", "audio"),
        ('{"type": "input_audio_buffer.append", "audio": "%%%%"}', "invalid_value", "audio", "not base64"),
        ('{"type": "input_audio_buffer.append", "audio": "YWJj"}', "invalid_value", "audio", "must be even"),
        ('{"type": "input_audio_buffer.commit"}', "input_audio_buffer_commit_empty", None, "holds 0 ms"),
        ('{"type": "response.cancel"}', "response_cancel_not_active", None, "no such response"),
        ('{"type": "conversation.item.delete", "item_id": "x"}', "item_not_found", "item_id", "no item 'x'"),
        (
            '{"type": "session.update", "session": {"audio": {"input": {"format": {"rate": 44100}}}}}',
            "invalid_value",
            "session.audio.input.format.rate",
            "44100",
        ),
        (
            '{"type": "session.update", "session": {"audio": {"input": '
            '{"turn_detection": {"type": "server_vad", "threshold": 7}}}}}',
            "invalid_value",
            "session.audio.input.turn_detection.threshold",
            "less than or equal to 1",
        ),
        ('{"type": "session.update", "session": {"instruction": "x"}}', "unknown_parameter", "session.instruction", ""),
        ('{"type": "session.update", "session": {"tools": [1]}}', "invalid_value", "session.tools", "at most 0"),
        ('{"type": "session.update"}', "missing_required_parameter", "session", "session"),
        (
            '{"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": []}}',
            "invalid_value",
            "item.content",
            "at least 1",
        ),
        (
            '{"type": "conversation.item.truncate", "item_id": "x", "content_index": 0, "audio_end_ms": -1}',
            "invalid_value",
            "audio_end_ms",
            "greater than or equal to 0",
        ),
    ],
)
def test_a_bad_event_is_an_error_that_names_the_field_and_the_conversation_goes_on(
    frame: str, code: str, param: str | None, said: str
) -> None:
    async def work(client: Client) -> None:
        await client.conversation.receive(frame)
        assert (client.error["code"], client.error["param"]) == (code, param)
        assert said in client.error["message"]
        await one_turn(client)

    client = talk(work)
    assert client.types().count("error") == 1
    assert client.last("response.done")["response"]["status"] == "completed"
    check_against_openai(client.events)


def test_what_was_created_is_told_as_it_was_then() -> None:
    async def work(client: Client) -> None:
        await client.send("response.create", response={"metadata": {"n": "1"}, "max_output_tokens": 5})
        await client.send("response.create", response={"metadata": {"n": "2"}})
        assert client.error["code"] == "conversation_already_has_active_response"
        await asyncio.sleep(2)
        await one_turn(client)

    created: list[ServerEvent] = []

    class Late(Client):
        """Serializes events only at the end, as a slow socket would."""

        def take(self, event: ServerEvent) -> None:
            created.append(event)
            super().take(event)

    async def run() -> None:
        client = Late()
        await work(client)
        await client.conversation.close()

    virtually(run)
    first, second = [json.loads(e.model_dump_json())["response"] for e in created if e.type == "response.created"]
    assert (first["status"], first["metadata"], first["max_output_tokens"]) == ("in_progress", {"n": "1"}, 5)
    assert (second["status"], second["metadata"], second["max_output_tokens"]) == ("in_progress", None, "inf")


def test_a_conversation_takes_no_endless_amount_of_text() -> None:
    async def work(client: Client) -> None:
        content = [{"type": "input_text", "text": "x" * 100_000}]
        for _ in range(11):
            item = {"type": "message", "role": "user", "content": content}
            await client.send("conversation.item.create", item=item)
        assert client.error["code"] == "conversation_too_long"

    assert talk(work).types().count("conversation.item.added") == 10


def test_an_error_carries_the_clients_event_id() -> None:
    async def work(client: Client) -> None:
        await client.send("input_audio_buffer.append", audio="%", event_id="evt_7")
        assert client.error["event_id"] == "evt_7"

    talk(work)


def test_an_event_that_is_too_large_is_refused_with_both_sizes() -> None:
    async def work(client: Client) -> None:
        await client.send("input_audio_buffer.append", audio="A" * MAX_EVENT_BYTES)
        assert client.error["code"] == "event_too_large"
        assert str(MAX_EVENT_BYTES) in client.error["message"]
        await one_turn(client)

    assert "response.done" in talk(work).types()


def test_a_bad_update_changes_nothing() -> None:
    async def work(client: Client) -> None:
        await client.configure(instructions="changed", audio={"output": {"speed": 99}})
        assert client.error["param"] == "session.audio.output.speed"
        await client.configure()

    assert talk(work).last("session.updated")["session"]["instructions"] != "changed"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
TYPES = [
    "session.update", "input_audio_buffer.append", "input_audio_buffer.commit", "input_audio_buffer.clear",
    "conversation.item.create", "conversation.item.delete", "conversation.item.truncate", "response.create",
    "response.cancel",
]  # fmt: skip
FIELDS = ["session", "audio", "item", "item_id", "response", "response_id", "content_index", "audio_end_ms", "event_id"]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(TYPES), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4)), max_size=5)
)
def test_no_event_breaks_the_conversation(sent: list[tuple[str, dict[str, Any]]]) -> None:
    async def work(client: Client) -> None:
        for kind, fields in sent:
            await client.send(kind, **fields)
            await asyncio.sleep(0.01)
        assert "internal_error" not in [event.get("error", {}).get("code") for event in client.events]
        await client.configure(instructions="still here")
        assert client.last("session.updated")["session"]["instructions"] == "still here"

    talk(work)
