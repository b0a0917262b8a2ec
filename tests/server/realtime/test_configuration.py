"""The choice of voice: of the session, of one response, and what cannot be chosen. How large a configuration may be."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.fakes import FakeVoice
from tests.server.realtime.conversation_client import Client, check_against_openai, hold_conversation, one_turn

FRANCE = ["The capital of France is", "Paris."]


def spoken_by(client: Client) -> dict[str, list[str]]:
    """What each voice has synthesized."""
    voices = client.speech_models.voices
    found: dict[str, Any] = {name: voices.find(name) for name in voices.names}
    return {name: voice.clauses for name, voice in found.items() if isinstance(voice, FakeVoice)}


@pytest.mark.parametrize(
    ("voice", "speaker"), [("other", "other"), ({"id": "other"}, "other"), ("marin", "fake"), ("default", "fake")]
)
def test_a_session_chooses_its_voice_and_names_of_openai_mean_the_default(voice: Any, speaker: str) -> None:
    async def scenario(client: Client) -> None:
        await client.configure(audio={"output": {"voice": voice}})
        await one_turn(client)

    client = hold_conversation(scenario)
    assert client.last("session.updated")["session"]["audio"]["output"]["voice"] == voice
    name = voice["id"] if isinstance(voice, dict) else voice
    assert client.last("response.done")["response"]["audio"]["output"]["voice"] == name
    assert "".join(spoken_by(client)[speaker]).endswith("Paris.")
    assert [clauses for name, clauses in spoken_by(client).items() if name != speaker] == [[]]
    check_against_openai(client.events)


@pytest.mark.parametrize("voice", ["nobody", {"id": "nobody"}])
def test_an_unknown_voice_is_an_error_that_names_the_voices(voice: Any) -> None:
    async def scenario(client: Client) -> None:
        await client.configure(audio={"output": {"voice": voice}}, instructions="Be brief.")
        assert client.error["param"] == "session.audio.output.voice"
        assert client.error["message"] == "the voice 'nobody' does not exist here: this server has fake, other"
        await client.send("response.create", response={"audio": {"output": {"voice": voice}}})
        assert client.error["param"] == "response.audio.output.voice"

    client = hold_conversation(scenario)
    assert client.conversation.session.settings.instructions != "Be brief."
    assert "response.created" not in client.types()


def test_the_voice_cannot_change_after_the_assistant_has_spoken() -> None:
    async def scenario(client: Client) -> None:
        await one_turn(client)
        await client.configure(audio={"output": {"voice": "other"}})
        assert (client.error["code"], client.error["param"]) == ("cannot_update_voice", "session.audio.output.voice")
        await client.send("response.create", response={"audio": {"output": {"voice": "other"}}})
        assert (client.error["code"], client.error["param"]) == ("cannot_update_voice", "response.audio.output.voice")
        await client.configure(audio={"output": {"voice": "alloy", "speed": 1.2}})  # the same voice
        assert client.events[-1]["type"] == "session.updated"
        await one_turn(client)

    client = hold_conversation(scenario)
    assert spoken_by(client)["other"] == []
    assert client.types().count("response.done") == 2


def test_written_responses_leave_the_choice_of_voice_open() -> None:
    async def scenario(client: Client) -> None:
        await client.configure(output_modalities=["text"])
        await one_turn(client)
        await client.configure(output_modalities=["audio"], audio={"output": {"voice": "other"}})
        await one_turn(client)

    assert spoken_by(hold_conversation(scenario))["fake"] == []


def test_a_response_may_have_a_voice_of_its_own_outside_the_conversation_even_later() -> None:
    async def scenario(client: Client) -> None:
        await one_turn(client)
        response = {"conversation": "none", "audio": {"output": {"voice": "other"}}}
        await client.send("response.create", response=response)
        await asyncio.sleep(3)

    client = hold_conversation(scenario)
    assert client.last("response.done")["response"]["audio"]["output"]["voice"] == "other"
    assert "".join(spoken_by(client)["other"]).endswith("Paris.")


def tool(size: int) -> dict[str, Any]:
    return {"type": "function", "name": "lookup", "parameters": {"type": "object", "description": "x" * size}}


def test_a_configuration_has_a_limit_and_a_larger_one_changes_nothing() -> None:
    async def scenario(client: Client) -> None:
        await client.configure(tools=[tool(200_000)])
        await client.configure(tools=[tool(300_000)], instructions="Be brief.")
        assert client.error["code"] == "session_too_large"
        assert "KiB, more than 256" in client.error["message"]
        await client.send("response.create", response={"tools": [tool(300_000)]})
        assert client.error["code"] == "session_too_large"

    client = hold_conversation(scenario)
    assert client.conversation.session.settings.instructions != "Be brief."
    assert len(client.conversation.session.settings.tools[0].parameters["description"]) == 200_000


def test_fields_without_effect_do_not_collect() -> None:
    async def scenario(client: Client) -> None:
        for number in range(3):
            variables = {f"v{number}": "x" * 100_000}
            await client.configure(
                prompt={"id": "p", "variables": variables},
                tracing={"metadata": variables},
                audio={"input": {"transcription": {"prompt": "y" * 4000, "keywords": ["z" * 1000]}}},
            )

    client = hold_conversation(scenario)
    session = client.last("session.updated")["session"]
    assert session["prompt"] is None and session["tracing"] is None
    assert len(json.dumps(session)) < 10_000
    assert client.conversation.copied_bytes < 30_000


def test_a_field_without_effect_is_checked_all_the_same() -> None:
    async def scenario(client: Client) -> None:
        await client.configure(audio={"input": {"noise_reduction": {"kind": "near_field"}}})
        assert client.error["code"] == "unknown_parameter"

    hold_conversation(scenario)
