"""The Realtime protocol: order and format of the events, and every kind of invalid input, without a socket."""

from __future__ import annotations

import asyncio
import base64
import json

import numpy as np
import pytest

from chat.types import Truncation
from server.realtime.conversation import MAX_EVENT_BYTES
from server.realtime.events import InputAudioBufferClear, InputAudioBufferCommit, ServerEvent
from tests.fakes import run_on_virtual_clock
from tests.server.realtime.conversation_client import Client, check_against_openai, hold_conversation, one_turn
from voice.audio.codec import Encoding, decode, encode

EXTENSIONS = ["rejoinder.draft", "rejoinder.phase", "rejoinder.transcript", "rejoinder.turn"]


def test_a_voice_turn_sends_its_events_in_the_order_that_clients_expect() -> None:
    client = hold_conversation(one_turn)
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
def test_the_response_audio_has_the_right_length_at_any_rate(rate: int, seconds: float) -> None:
    async def scenario(client: Client) -> None:
        await client.configure(audio={"output": {"format": {"type": "audio/pcm", "rate": rate}}})
        await one_turn(client)

    client = hold_conversation(scenario)
    deltas = [event["delta"] for event in client.events if event["type"] == "response.output_audio.delta"]
    assert sum(len(base64.b64decode(delta)) for delta in deltas) == pytest.approx(2 * rate * seconds, abs=8)


@pytest.mark.parametrize("rate", [8_000, 16_000, 48_000])
def test_other_input_rates_are_accepted(rate: int) -> None:
    async def scenario(client: Client) -> None:
        await client.configure(audio={"input": {"format": {"type": "audio/pcm", "rate": rate}}})
        await client.speak(1.0, 0.5, rate)
        await client.speak(2.0, 0.0, rate)

    assert "response.done" in hold_conversation(scenario).types()


@pytest.mark.parametrize("encoding", ["pcmu", "pcma"])
def test_telephone_audio_is_accepted_and_returned_in_the_same_format(encoding: Encoding) -> None:
    async def scenario(client: Client) -> None:
        audio_config = {"format": {"type": f"audio/{encoding}"}}
        await client.configure(audio={"input": audio_config, "output": audio_config})
        for loudness, blocks in ((0.5, 50), (0.0, 150)):
            for _ in range(blocks):
                await asyncio.sleep(0.02)
                data = encode(np.full(160, loudness, np.float32), encoding)
                await client.send("input_audio_buffer.append", audio=base64.b64encode(data).decode())

    client = hold_conversation(scenario)
    assert client.last("session.updated")["session"]["audio"]["input"]["format"] == {"type": f"audio/{encoding}"}
    assert client.last("response.created")["response"]["audio"]["output"]["format"] == {"type": f"audio/{encoding}"}
    deltas = [event["delta"] for event in client.events if event["type"] == "response.output_audio.delta"]
    audio = b"".join(base64.b64decode(delta) for delta in deltas)
    assert len(audio) == pytest.approx(4800, abs=4)  # 0.6 s, one byte per sample
    assert np.abs(decode(audio, encoding)).max() > 0.3
    check_against_openai(client.events)


def test_extension_events_are_sent_only_to_clients_that_include_them() -> None:
    async def with_extensions(client: Client) -> None:
        await client.configure(include=EXTENSIONS)
        await one_turn(client)

    assert not [kind for kind in hold_conversation(one_turn).types() if kind.startswith("rejoinder.")]
    client = hold_conversation(with_extensions)
    assert {kind for kind in client.types() if kind.startswith("rejoinder.")} == set(EXTENSIONS)
    turn = client.last("rejoinder.turn")
    del turn["stages_ms"]["end_of_turn"]  # runs in parallel with the others
    assert turn["latency_ms"] == pytest.approx(sum(turn["stages_ms"].values()), abs=1)
    assert (turn["guesses"], turn["guess_kept"]) == (1, True)


def test_interrupting_cancels_the_response_with_reason_turn_detected() -> None:
    async def scenario(client: Client) -> None:
        client.language_model.words = [f" word{n}" for n in range(60)]
        client.language_model.seconds_per_word = 0.1
        await client.speak(1.0, 0.5)
        await client.speak(2.0, 0.0)
        await client.speak(0.5, 0.5)

    client = hold_conversation(scenario)
    done = client.last("response.done")["response"]
    assert (done["status"], done["status_details"]["reason"]) == ("cancelled", "turn_detected")
    assert (
        client.types().index("response.done")
        > [n for n, kind in enumerate(client.types()) if kind == "input_audio_buffer.speech_started"][1]
    )
    assert client.last("response.output_item.done")["item"]["status"] == "incomplete"
    check_against_openai(client.events)


def test_push_to_talk_sends_no_speech_events() -> None:
    async def scenario(client: Client) -> None:
        await client.configure(audio={"input": {"turn_detection": None}})
        await client.speak(1.0, 0.5)
        await client.send("input_audio_buffer.commit")
        await client.send("response.create", response={"metadata": {"mine": "1"}})
        await asyncio.sleep(3)

    client = hold_conversation(scenario)
    assert client.last("response.done")["response"]["metadata"] == {"mine": "1"}
    assert "input_audio_buffer.speech_started" not in client.types()
    check_against_openai(client.events)


def test_a_text_conversation_sends_no_audio() -> None:
    async def scenario(client: Client) -> None:
        await client.configure(output_modalities=["text"], instructions="Be brief.")
        content = [{"type": "input_text", "text": "Hello"}]
        item = {"type": "message", "role": "user", "id": "mine", "content": content}
        await client.send("conversation.item.create", item=item)
        await client.send("response.create")
        await asyncio.sleep(2)
        await client.send("conversation.item.retrieve", item_id="mine")
        await client.send("conversation.item.delete", item_id="mine")

    client = hold_conversation(scenario)
    assert client.last("response.output_text.done")["text"] == "The capital of France is Paris."
    assert "response.output_audio.delta" not in client.types()
    assert client.last("conversation.item.retrieved")["item"]["content"][0]["text"] == "Hello"
    assert [m.content for m in client.language_model.prompts[0]] == ["Be brief.", "Hello"]
    check_against_openai(client.events)


def test_truncating_an_item_shortens_its_transcript() -> None:
    async def scenario(client: Client) -> None:
        await one_turn(client)
        item = client.last("response.output_item.done")["item"]["id"]
        await client.send("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=405)
        await client.send("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=99_000)
        assert client.error["param"] == "audio_end_ms"
        question = client.last("conversation.item.input_audio_transcription.completed")["item_id"]
        await client.send("conversation.item.truncate", item_id=question, content_index=0, audio_end_ms=0)
        assert client.error["param"] == "item_id"
        await client.send("conversation.item.retrieve", item_id=item)

    client = hold_conversation(scenario)
    assert client.last("conversation.item.truncated")["audio_end_ms"] == 405
    transcript = client.last("conversation.item.retrieved")["item"]["content"][0]["transcript"]
    assert transcript == "The capital of France"
    check_against_openai(client.events)


def test_a_session_update_is_merged_and_the_whole_session_is_returned() -> None:
    async def scenario(client: Client) -> None:
        await client.configure(audio={"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 700}}})
        await client.configure(instructions="Be brief.", audio={"output": {"speed": 1.2, "voice": "marin"}})

    client = hold_conversation(scenario)
    updated = client.last("session.updated")["session"]
    assert updated["audio"]["input"]["turn_detection"]["silence_duration_ms"] == 700
    assert (updated["instructions"], updated["audio"]["output"]["speed"]) == ("Be brief.", 1.2)
    assert updated["audio"]["output"]["voice"] == "marin"
    assert client.conversation.session.settings.rules.timing.end_silence_ms == 700
    check_against_openai(client.events)


def test_semantic_vad_applies_its_eagerness() -> None:
    async def scenario(client: Client) -> None:
        await client.configure(audio={"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "high"}}})

    client = hold_conversation(scenario)
    assert client.last("session.updated")["session"]["audio"]["input"]["turn_detection"]["type"] == "semantic_vad"
    rules = client.conversation.session.settings.rules
    assert rules.timing.longest_wait_ms == 450 and not rules.silence_only


@pytest.mark.parametrize(
    ("frame", "code", "param", "message"),
    [
        ("{nonsense", "invalid_json", None, "not JSON"),
        ("[1, 2]", "invalid_json", None, "JSON object"),
        ("{}", "missing_required_parameter", "type", "must have a type"),
        ('{"type": "dance"}', "unknown_event", "type", "dance"),
        ('{"type": "input_audio_buffer.append"}', "missing_required_parameter", "audio", "audio"),
        ('{"type": "input_audio_buffer.append", "audio": "%%%%"}', "invalid_value", "audio", "not base64"),
        ('{"type": "input_audio_buffer.append", "audio": "Grüße"}', "invalid_value", "audio", "not base64"),
        ('{"type": "input_audio_buffer.append", "audio": "YWJj"}', "invalid_value", "audio", "must be even"),
        ('{"type": "input_audio_buffer.commit"}', "input_audio_buffer_commit_empty", None, "holds 0 ms"),
        # LiveKit's client knows this error by how its message begins, and takes any other for a failure.
        ('{"type": "response.cancel"}', "response_cancel_not_active", None, "Cancellation failed: no such response"),
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
        (
            '{"type": "session.update", "session": {"tools": [1]}}',
            "invalid_value",
            "session.tools.0",
            "valid dictionary",
        ),
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
def test_an_invalid_event_produces_an_error_that_names_the_field_and_the_conversation_continues(
    frame: str, code: str, param: str | None, message: str
) -> None:
    async def scenario(client: Client) -> None:
        await client.conversation.receive(frame)
        assert (client.error["code"], client.error["param"]) == (code, param)
        assert message in client.error["message"]
        await one_turn(client)

    client = hold_conversation(scenario)
    assert client.types().count("error") == 1
    assert client.last("response.done")["response"]["status"] == "completed"
    check_against_openai(client.events)


def test_response_created_keeps_its_state_until_it_is_serialized() -> None:
    async def scenario(client: Client) -> None:
        await client.send("response.create", response={"metadata": {"n": "1"}, "max_output_tokens": 5})
        await client.send("response.create", response={"metadata": {"n": "2"}})
        assert client.error["code"] == "conversation_already_has_active_response"
        await asyncio.sleep(2)
        await one_turn(client)

    unserialized: list[ServerEvent] = []

    class SlowClient(Client):
        """Serializes events only at the end, like a slow socket."""

        def record(self, event: ServerEvent) -> None:
            unserialized.append(event)
            super().record(event)

    async def run() -> None:
        client = SlowClient()
        await scenario(client)
        await client.conversation.close()

    run_on_virtual_clock(run)
    first, second = [json.loads(e.model_dump_json())["response"] for e in unserialized if e.type == "response.created"]
    assert (first["status"], first["metadata"], first["max_output_tokens"]) == ("in_progress", {"n": "1"}, 5)
    assert (second["status"], second["metadata"], second["max_output_tokens"]) == ("in_progress", None, "inf")


def test_the_text_of_a_conversation_is_limited() -> None:
    async def scenario(client: Client) -> None:
        content = [{"type": "input_text", "text": "x" * 100_000}]
        for _ in range(11):
            item = {"type": "message", "role": "user", "content": content}
            await client.send("conversation.item.create", item=item)
        assert client.error["code"] == "conversation_too_long"

    assert hold_conversation(scenario).types().count("conversation.item.added") == 10


def test_typed_events_are_handled_like_text_frames() -> None:
    async def scenario(client: Client) -> None:
        await client.conversation.handle(InputAudioBufferClear(type="input_audio_buffer.clear"))
        await client.conversation.handle(InputAudioBufferCommit(type="input_audio_buffer.commit", event_id="evt_1"))
        assert (client.error["code"], client.error["event_id"]) == ("input_audio_buffer_commit_empty", "evt_1")

    client = hold_conversation(scenario)
    assert client.types() == ["session.created", "input_audio_buffer.cleared", "error"]


def test_an_error_carries_the_clients_event_id() -> None:
    async def scenario(client: Client) -> None:
        await client.send("input_audio_buffer.append", audio="%", event_id="evt_7")
        assert client.error["event_id"] == "evt_7"

    hold_conversation(scenario)


def test_an_event_that_is_too_large_is_rejected_with_the_limit() -> None:
    async def scenario(client: Client) -> None:
        await client.send("input_audio_buffer.append", audio="A" * MAX_EVENT_BYTES)
        assert client.error["code"] == "event_too_large"
        assert str(MAX_EVENT_BYTES) in client.error["message"]
        await one_turn(client)

    assert "response.done" in hold_conversation(scenario).types()


def test_effort_and_truncation_reach_the_language_model() -> None:
    async def scenario(client: Client) -> None:
        limits = {"post_instructions": 500}
        truncation = {"type": "retention_ratio", "retention_ratio": 0.8, "token_limits": limits}
        await client.configure(reasoning={"effort": "xhigh"}, truncation=truncation)
        assert client.language_model.truncation == Truncation(retention_ratio=0.8, max_tokens=500)
        await client.configure(truncation="disabled")
        assert client.language_model.truncation == Truncation(keep_all=True)
        await client.send("response.create")
        await asyncio.sleep(1)
        await client.send("response.create", response={"reasoning": {"effort": "minimal"}})
        await asyncio.sleep(1)

    assert hold_conversation(scenario).language_model.efforts == ["high", "instant"]


def test_an_invalid_session_update_changes_nothing() -> None:
    async def scenario(client: Client) -> None:
        await client.configure(instructions="changed", audio={"output": {"speed": 99}})
        assert client.error["param"] == "session.audio.output.speed"
        await client.configure()

    assert hold_conversation(scenario).last("session.updated")["session"]["instructions"] != "changed"
