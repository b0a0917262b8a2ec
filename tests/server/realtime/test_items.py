"""Items that clients create, and responses to items of their own choice."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import numpy as np
import pytest

from tests.server.realtime.conversation_client import Client, check_against_openai, hold_conversation
from voice.audio.codec import to_pcm16
from voice.out_of_band import MAX_OUT_OF_BAND


def recording(seconds: float, loudness: float = 0.5) -> str:
    pcm = to_pcm16(np.full(int(24_000 * seconds), loudness, np.float32))
    return base64.b64encode(pcm).decode()


def user(*content: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(content), **fields}


def text(content: str) -> dict[str, Any]:
    return {"type": "input_text", "text": content}


def of_type(client: Client, type: str) -> list[dict[str, Any]]:
    return [event for event in client.events if event["type"] == type]


def test_a_recording_is_transcribed_and_answered() -> None:
    async def scenario(client: Client) -> None:
        item = user(text("Listen:"), {"type": "input_audio", "audio": recording(2.0)}, id="mine")
        await client.send("conversation.item.create", item=item)
        await client.send("response.create")
        await asyncio.sleep(3)

    client = hold_conversation(scenario)
    check_against_openai(client.events)
    transcribed = client.last("conversation.item.input_audio_transcription.completed")
    assert (transcribed["item_id"], transcribed["usage"]["seconds"]) == ("mine", 2.0)
    assert client.language_model.prompts[-1][-1].content == "Listen: What is the capital of France?"
    assert client.last("response.done")["response"]["status"] == "completed"


@pytest.mark.parametrize(
    ("content", "param"),
    [
        ([{"type": "input_audio", "audio": "%"}], "item.content"),
        ([{"type": "input_audio", "audio": recording(0.05)}], "item.content"),
        ([{"type": "input_audio", "audio": recording(1.0)}] * 2, "item.content"),
        ([{"type": "input_audio"}], "item.content.0.transcript"),
        ([text("Look:"), {"type": "input_image", "image_url": "data:image/png;base64,AA=="}], "item.content.1.type"),
    ],
)
def test_what_cannot_be_read_is_rejected(content: list[dict[str, Any]], param: str) -> None:
    async def scenario(client: Client) -> None:
        await client.send("conversation.item.create", item=user(*content))
        assert (client.error["code"], client.error["param"]) == ("invalid_value", param)
        assert not client.conversation.session.history.items

    hold_conversation(scenario)


def test_the_transcript_of_a_recording_may_come_with_it() -> None:
    async def scenario(client: Client) -> None:
        spoken = {"type": "input_audio", "transcript": "Good morning"}
        await client.send("conversation.item.create", item=user(spoken))
        answer = {"type": "message", "role": "assistant", "content": [{"type": "output_audio", "transcript": "Hello!"}]}
        await client.send("conversation.item.create", item=answer)
        await client.send("response.create", response={"output_modalities": ["text"]})
        await asyncio.sleep(1)

    client = hold_conversation(scenario)
    assert [message.content for message in client.language_model.prompts[-1][1:]] == ["Good morning", "Hello!"]


def test_an_out_of_band_response_runs_in_parallel_and_leaves_no_trace() -> None:
    async def scenario(client: Client) -> None:
        client.language_model.seconds_per_word = 0.1
        await client.send("conversation.item.create", item=user(text("My name is Ada."), id="name"))
        await client.send("response.create")
        classify = {
            "conversation": "none",
            "output_modalities": ["text"],
            "instructions": "Name the language.",
            "metadata": {"purpose": "classify"},
            "input": [{"type": "item_reference", "id": "name"}, user(text("And this?"))],
        }
        await client.send("response.create", response=classify)
        await asyncio.sleep(5)

    client = hold_conversation(scenario)
    check_against_openai(client.events)
    created = [event["response"] for event in of_type(client, "response.created")]
    assert [response["conversation_id"] is None for response in created] == [False, True]
    done = {event["response"]["id"]: event["response"] for event in of_type(client, "response.done")}
    outside = done[created[1]["id"]]
    assert (outside["status"], outside["metadata"]) == ("completed", {"purpose": "classify"})
    assert outside["output"][0]["content"][0]["text"] == "The capital of France is Paris."
    assert outside["output"][0]["id"] not in [item.id for item in client.conversation.session.history.items]
    added = [event["item"]["id"] for event in of_type(client, "conversation.item.added")]
    assert outside["output"][0]["id"] not in added
    prompt = next(prompt for prompt in client.language_model.prompts if prompt[0].content == "Name the language.")
    assert [message.content for message in prompt[1:]] == ["My name is Ada.", "And this?"]


def test_a_response_to_other_items_may_become_part_of_the_conversation() -> None:
    async def scenario(client: Client) -> None:
        await client.send("conversation.item.create", item=user(text("Hello")))
        await client.send("response.create", response={"input": [], "instructions": "Say something."})
        await asyncio.sleep(3)

    client = hold_conversation(scenario)
    assert [message.content for message in client.language_model.prompts[-1]] == ["Say something."]
    assert len(client.conversation.session.history.items) == 2


def test_an_out_of_band_response_is_cancelled_by_its_id() -> None:
    async def scenario(client: Client) -> None:
        client.language_model.seconds_per_word = 1.0
        for _ in range(MAX_OUT_OF_BAND):
            await client.send("response.create", response={"conversation": "none"})
        await client.send("response.create", response={"conversation": "none"})
        assert client.error["code"] == "too_many_responses"
        await client.send("response.cancel", response_id=client.last("response.created")["response"]["id"])
        assert client.last("response.done")["response"]["status"] == "cancelled"
        await client.send("response.create", response={"conversation": "none"})
        await asyncio.sleep(30)

    client = hold_conversation(scenario)
    check_against_openai(client.events)
    statuses = [event["response"]["status"] for event in of_type(client, "response.done")]
    assert statuses == ["cancelled", *["completed"] * MAX_OUT_OF_BAND]


def test_an_out_of_band_response_fails_like_any_other_if_a_recording_cannot_be_transcribed() -> None:
    async def scenario(client: Client) -> None:
        client.recognizer.failing = True
        item = user({"type": "input_audio", "audio": recording(2.0)})
        await client.send("conversation.item.create", item=item)
        await client.send("response.create", response={"conversation": "none"})
        await asyncio.sleep(3)

    client = hold_conversation(scenario)
    check_against_openai(client.events)
    assert client.last("response.done")["response"]["status"] == "failed"


def test_a_reference_to_an_unknown_item_is_an_error() -> None:
    async def scenario(client: Client) -> None:
        await client.send("response.create", response={"input": [{"type": "item_reference", "id": "x"}]})
        assert (client.error["code"], client.error["param"]) == ("item_not_found", "response.input.0.id")
        assert "response.created" not in client.types()

    hold_conversation(scenario)


def test_parts_of_a_message_are_lines_and_nulls_of_other_parts_are_ignored() -> None:
    async def scenario(client: Client) -> None:
        empty = {"audio": None, "transcript": None, "image_url": None, "detail": None}
        parts = [{"type": "input_text", "text": text, **empty} for text in ("What is it?", "Answer in one word.")]
        await client.send("conversation.item.create", item=user(*parts))
        await client.send("response.create")
        await asyncio.sleep(3)

    client = hold_conversation(scenario)
    assert "error" not in client.types()
    assert client.language_model.prompts[-1][-1].content == "What is it?\nAnswer in one word."
