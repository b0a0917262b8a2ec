"""Captions of a transcription session, and their listeners over real sockets."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import httpx
import numpy as np
import pytest

from server.caption_broadcasts import MAX_LISTENERS, CaptionBroadcasts, TooManyListeners
from tests.real_time import HANG_S
from tests.server.live_server import connected, receive, serving
from tests.server.realtime.conversation_client import Client, hold_conversation
from voice.audio.codec import to_pcm16

INCLUDE = ["rejoinder.caption", "rejoinder.listeners"]
TRANSCRIPTION = {"type": "transcription", "include": INCLUDE}


def of_type(client: Client, type: str) -> list[dict[str, Any]]:
    return [event for event in client.events if event["type"] == type]


def test_words_are_provisional_and_then_stable_with_times_on_the_sessions_clock() -> None:
    async def scenario(client: Client) -> None:
        await client.send("session.update", session=TRANSCRIPTION)
        for _ in range(2):
            await client.speak(4.0, 0.5)
            await client.speak(2.0, 0.0)

    client = hold_conversation(scenario)
    captions = of_type(client, "rejoinder.caption")
    assert [word["word"] for word in captions[0]["provisional"]] == "What is the capital of France?".split()
    assert not captions[0]["stable"]
    finals = [event for event in captions if event["final"]]
    assert len(finals) == 2 and finals[1]["corrected"] == 0
    second = [event for event in captions if event["item_id"] == finals[1]["item_id"]]
    first_stable = next(event["stable"] for event in second if event["stable"])
    assert first_stable[0]["start"] == pytest.approx(6.0, abs=0.4)
    assert first_stable[0]["confidence"] == 0.61
    words: list[str] = []
    for event in second:
        words[event["first"] :] = [word["word"] for word in event["stable"]]
    assert " ".join(words) == "What is the capital of France?"


@pytest.mark.parametrize(
    ("session", "param"),
    [
        ({"type": "realtime", "include": INCLUDE}, "session.include"),
        (
            {**TRANSCRIPTION, "audio": {"input": {"turn_detection": None}}},
            "session.audio.input.turn_detection",
        ),
    ],
)
def test_sessions_that_cannot_have_captions_say_so(session: dict[str, Any], param: str) -> None:
    async def scenario(client: Client) -> None:
        await client.send("session.update", session=session)

    client = hold_conversation(scenario)
    assert client.error["param"] == param


async def test_listeners_read_with_a_ticket_and_can_do_nothing_else() -> None:
    with serving(api_keys=frozenset({"secret"})) as address:
        async with (
            connected(address, subprotocols=["realtime", "openai-insecure-api-key.secret"]) as speaker,
            httpx.AsyncClient(base_url=f"http://{address}", timeout=HANG_S) as web,
        ):
            await speaker.send(json.dumps({"type": "session.update", "session": TRANSCRIPTION}))
            shared = await receive(speaker, "rejoinder.listeners")
            assert shared["listeners"] == 0
            path, ticket = f"/v1/captions/{shared['captions']}", {"Authorization": f"Bearer {shared['ticket']}"}
            for wrong in ({}, {"Authorization": "Bearer secret"}, {"Authorization": "Bearer ct_forged"}):
                assert (await web.get(path, headers=wrong)).status_code == 404
            assert (await web.get("/v1/captions/cap_other", headers=ticket)).status_code == 404
            assert (await web.get("/metrics", headers=ticket)).status_code == 401
            forged = ["realtime", f"openai-insecure-api-key.{shared['ticket']}"]
            async with connected(address, subprotocols=forged) as other:
                assert (await receive(other, "error"))["error"]["code"] == "invalid_api_key"
            async with web.stream("GET", path, headers=ticket) as early:
                assert (await receive(speaker, "rejoinder.listeners"))["listeners"] == 1
                lines = early.aiter_lines()
                speaking = asyncio.create_task(speak(speaker))
                early_words = await final_words(lines)
                async with web.stream("GET", path, headers=ticket) as late:
                    assert await final_words(late.aiter_lines()) == early_words == "What is the capital of France?"
                await speaking
                await speaker.close()
                assert [line async for line in lines if line.startswith("data")][-1] == "data: [DONE]"
            assert (await web.get(path, headers=ticket)).status_code == 404


async def speak(speaker: Any) -> None:
    for level, seconds in ((0.5, 2.0), (0.0, 2.0)):
        pcm = to_pcm16(np.full(int(24_000 * seconds), level, np.float32))
        audio = base64.b64encode(pcm).decode()
        await speaker.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))


async def final_words(lines: Any) -> str:
    words: list[str] = []
    async for line in lines:
        if line.startswith("data: {"):
            event = json.loads(line.removeprefix("data: "))
            words[event["first"] :] = [word["word"] for word in event["stable"]]
            if event["final"]:
                return " ".join(words)
    raise AssertionError("the captions ended before their turn did")


async def test_a_slow_listener_is_let_go_of_and_there_are_only_so_many() -> None:
    counts: list[int] = []
    broadcasts = CaptionBroadcasts()
    broadcast = broadcasts.open(counts.append)
    listening = [broadcast.listen() for _ in range(MAX_LISTENERS)]
    for one in listening:
        await anext(one)
    with pytest.raises(TooManyListeners, match="100 listeners"):
        broadcast.listen()
    for number in range(300):
        broadcast.publish("item", {"n": number}, {"n": number}, final=False)
    received = [item async for item in listening[0]]
    assert 200 < len(received) < 300
    assert counts[:3] == [1, 2, 3]
    again = broadcast.listen()
    assert (await anext(again), await anext(again)) == (": captions\n\n", 'data: {"n":299}\n\n')
    broadcasts.close(broadcast)
    assert [item async for item in again] == ["data: [DONE]\n\n"]
    assert broadcasts.find(broadcast.id, [broadcast.ticket]) is None
