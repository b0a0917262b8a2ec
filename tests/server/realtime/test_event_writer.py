"""Sessions that only transcribe, and the timeout of a silent user."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest

from tests.server.realtime.conversation_client import Client, check_against_openai, hold_conversation, one_turn

PREFIX = "conversation.item.input_audio_transcription"


def of_type(client: Client, type: str) -> list[dict[str, Any]]:
    return [event for event in client.events if event["type"] == type]


def test_a_transcription_session_sends_captions_while_the_user_speaks_and_no_responses() -> None:
    async def scenario(client: Client) -> None:
        await client.send("session.update", session={"type": "transcription"})
        await client.speak(4.0, 0.5)
        await client.speak(2.0, 0.0)
        await client.send("response.create", event_id="evt_1")

    client = hold_conversation(scenario)
    check_against_openai(client.events)
    assert set(client.last("session.updated")["session"]) == {"id", "object", "type", "audio", "include"}
    types = client.types()
    assert types.index(f"{PREFIX}.delta") < types.index("input_audio_buffer.speech_stopped")
    captions = "".join(event["delta"] for event in of_type(client, f"{PREFIX}.delta"))
    assert captions == client.last(f"{PREFIX}.completed")["transcript"] == "What is the capital of France?"
    assert "response.created" not in types
    assert client.error["event_id"] == "evt_1"
    assert not client.language_model.prompts


def test_a_transcription_session_has_no_instructions_and_can_become_a_conversation() -> None:
    async def scenario(client: Client) -> None:
        await client.send("session.update", session={"type": "transcription", "instructions": "x"})
        assert (client.error["code"], client.error["param"]) == ("unknown_parameter", "session.instructions")
        await client.send("session.update", session={"type": "transcription"})
        await client.send("session.update", session={"type": "realtime", "instructions": "Be brief."})
        await one_turn(client)

    client = hold_conversation(scenario)
    assert client.last("session.updated")["session"]["instructions"] == "Be brief."
    assert client.last("response.done")["response"]["status"] == "completed"


def test_a_silent_user_is_spoken_to_after_the_idle_timeout() -> None:
    async def scenario(client: Client) -> None:
        detection = {"type": "server_vad", "idle_timeout_ms": 5000}
        await client.configure(audio={"input": {"turn_detection": detection}})
        await one_turn(client)
        await client.speak(6.0, 0.0)

    client = hold_conversation(scenario)
    check_against_openai(client.events)
    timeout = client.last("input_audio_buffer.timeout_triggered")
    assert 5000 <= timeout["audio_end_ms"] - timeout["audio_start_ms"] <= 5100
    assert client.last("input_audio_buffer.committed")["item_id"] == timeout["item_id"]
    assert len(of_type(client, "response.done")) == 2
    assert client.language_model.prompts[-1][-1].content == "(The user has said nothing for 5 seconds.)"


@pytest.mark.parametrize("milliseconds", [4999, 30_001])
def test_the_idle_timeout_has_limits(milliseconds: int) -> None:
    async def scenario(client: Client) -> None:
        detection = {"type": "server_vad", "idle_timeout_ms": milliseconds}
        await client.configure(audio={"input": {"turn_detection": detection}})
        assert client.error["param"] == "session.audio.input.turn_detection.idle_timeout_ms"

    hold_conversation(scenario)


def test_the_words_of_a_transcript_are_timed_and_weighted_on_request() -> None:
    async def scenario(client: Client) -> None:
        await client.configure(include=["item.input_audio_transcription.logprobs", "rejoinder.words"])
        await one_turn(client)

    client = hold_conversation(scenario)
    check_against_openai([event for event in client.events if event["type"] != "session.updated"])
    logprobs = client.last(f"{PREFIX}.completed")["logprobs"]
    assert "".join(one["token"] for one in logprobs).strip() == "What is the capital of France?"
    assert logprobs[0] == {"token": " What", "logprob": -0.5, "bytes": list(b" What")}
    (words,) = [event["words"] for event in of_type(client, "rejoinder.words") if "response_id" not in event]
    assert words[1] == {"word": "is", "start": 1, "end": 2}
    assert client.last("response.done")["response"]["status"] == "completed"
    assert "logprobs" not in hold_conversation(one_turn).last(f"{PREFIX}.completed")


def test_the_users_language_reaches_the_recognizer() -> None:
    async def scenario(client: Client) -> None:
        await client.configure(audio={"input": {"transcription": {"language": "de"}}})
        await one_turn(client)
        assert client.recognizer.language == "de"
        await client.configure(audio={"input": {"transcription": {"language": "xx"}}})
        assert client.error["param"] == "session.audio.input.transcription.language"
        assert "en, de" in client.error["message"]

    hold_conversation(scenario)


def test_a_response_says_when_its_words_are_spoken_and_which_shapes_the_mouth_has() -> None:
    async def scenario(client: Client) -> None:
        await client.configure(include=["rejoinder.words", "rejoinder.visemes"])
        await one_turn(client)

    client = hold_conversation(scenario)
    (message,) = client.last("response.done")["response"]["output"]
    words = [word for event in of_type(client, "rejoinder.words") if "response_id" in event for word in event["words"]]
    shapes = [shape for event in of_type(client, "rejoinder.visemes") for shape in event["visemes"]]
    assert " ".join(word["word"] for word in words) == message["content"][0]["transcript"].strip()
    assert words[1] == {"word": words[1]["word"], "start_ms": 100, "end_ms": 200}
    assert shapes[1] == {"viseme": "aa", "azure_id": 2, "start_ms": 100, "end_ms": 200}
    kinds = [event["type"] for event in client.events]
    first_audio = kinds.index("response.output_audio.delta")
    assert kinds.index("rejoinder.visemes") < first_audio
    audio_ms = sum(len(b64decode(event["delta"])) for event in of_type(client, "response.output_audio.delta")) / 48
    assert words[-1]["end_ms"] == pytest.approx(audio_ms, abs=1)
    assert not of_type(hold_conversation(one_turn), "rejoinder.visemes")


def test_an_interruption_cuts_the_times_where_it_cuts_the_words() -> None:
    async def scenario(client: Client) -> None:
        await client.configure(include=["rejoinder.words", "rejoinder.visemes"])
        client.language_model.words = [f" word{n}." for n in range(60)]
        client.language_model.seconds_per_word = 0.1
        await client.speak(1.0, 0.5)
        await client.speak(2.0, 0.0)
        await client.speak(0.5, 0.5)
        await client.speak(0.2, 0.0)
        item_id = client.last("response.output_item.done")["item"]["id"]
        await client.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=850)
        await client.send("conversation.item.retrieve", item_id=item_id)

    client = hold_conversation(scenario)
    done = client.last("response.done")["response"]
    assert (done["status"], done["status_details"]["reason"]) == ("cancelled", "turn_detected")
    interrupted = [n for n, kind in enumerate(client.types()) if kind == "input_audio_buffer.speech_started"][1]
    timed = [
        n for n, event in enumerate(client.events) if event.get("response_id") == done["id"] and "item_id" in event
    ]
    kinds = {client.types()[n] for n in timed if n > interrupted}
    assert not kinds & {"rejoinder.words", "rejoinder.visemes"}
    sent = [client.events[n] for n in timed if client.types()[n] == "rejoinder.words"]
    words = [word["word"] for event in sent for word in event["words"]]
    kept = client.last("conversation.item.retrieved")["item"]["content"][0]["transcript"].split()
    assert 8 < len(words) < 60 and kept == words[:8]  # each takes 100 ms
