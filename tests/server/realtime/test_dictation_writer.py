"""Dictation in transcription sessions: each turn is cleaned up, with the one before it if it corrects that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.dictation.cleaner import DictationCleaner
from server.realtime.dictation_writer import DictationWriter
from tests.fakes import FakeLanguageModel
from tests.real_time import wait_until
from tests.server.realtime.conversation_client import Client, hold_conversation

DICTATION = {"type": "transcription", "audio": {"input": {"transcription": {"clean": True}}}}
RAW = "What is the capital of France?"


@pytest.mark.parametrize(
    ("words", "text", "objection"),
    [
        (["What is the", " capital?"], "What is the capital?", None),
        (["It is Paris."], RAW, "'it' was not said"),
    ],
)
def test_a_dictated_turn_has_its_clean_text_after_its_raw_words(
    words: list[str], text: str, objection: str | None
) -> None:
    async def scenario(client: Client) -> None:
        client.language_model.words = words
        await client.send("session.update", session=DICTATION)
        await client.speak(4.0, 0.5)
        await client.speak(2.0, 0.0)

    client = hold_conversation(scenario)
    item = client.last("conversation.item.input_audio_transcription.completed")["item_id"]
    clean = client.last("rejoinder.clean")
    assert (clean["item_ids"], clean["raw"], clean["text"], clean["objection"]) == ([item], RAW, text, objection)
    last = [prompt[-1] for prompt in client.language_model.prepared]
    assert "assistant" in [message.role for message in last], "the examples are read at the beginning"
    assert RAW in [message.content for message in last], "words are read while they are spoken"
    assert client.language_model.asked[-1].prediction == RAW


async def test_a_correction_is_rewritten_together_with_the_turn_that_it_corrects() -> None:
    events, model = list[Any](), FakeLanguageModel(["Meet on Tuesday."], seconds_per_word=0)
    cleaner = DictationCleaner(model)
    writer = DictationWriter(lambda: cleaner, lambda event: events.append(event.model_dump()))
    for number, raw in enumerate(("", "Meet on Monday.", "No, make that Tuesday.", "Bring bread.")):
        writer.read_ahead(raw[:12])
        writer.add(f"item {number}", raw)
    async with asyncio.timeout(10):
        await wait_until(lambda: len(events) == 3)
    await writer.close()
    rewritten = ["Meet on Monday.", "Meet on Monday. No, make that Tuesday.", "Bring bread."]
    assert [prompt[-1].content for prompt in model.prompts] == [event["raw"] for event in events] == rewritten
    assert [prompt[-1].content for prompt in model.prepared] == [
        "Meet on Mond", "Meet on Monday. No, make tha", "Bring bread.",
    ]  # fmt: skip
    assert [event["item_ids"] for event in events] == [["item 1"], ["item 1", "item 2"], ["item 3"]]
    assert events[1]["text"] == "Meet on Tuesday." and events[2]["objection"]
