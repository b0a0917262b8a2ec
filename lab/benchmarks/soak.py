"""A soak of the whole server: thousands of turns over real sockets, in several conversations.

Every response must belong to its own conversation and turn, none may be lost, and memory may not grow by more than 2 %
after the first 200 turns. With fake models by default, in this process; with a real one in a server of its own, which
is asked for the capitals of countries by voice, faster than real time.

    python -m lab.benchmarks.soak --turns 2000
    python -m lab.benchmarks.soak --turns 300 --conversations 2 --model qwen2.5-coder-0.5b
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import gc
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import server.openmp  # noqa: F401 - before torch

# isort: split
import httpx
import numpy as np
from websockets.asyncio.client import ClientConnection

from chat.types import Ask
from lab.report.own_server import own_server
from model.hub.store import ModelStore
from server.serving.options import DEFAULT_VOICE
from tests.fakes import FakeLanguageModel, FakeProgress, LoudnessDetector
from tests.server.live_server import connected, receive, serving
from voice import session
from voice.audio.codec import OUTPUT_RATE, Samples, to_pcm16
from voice.clauses import Clause
from voice.tts import Voice

WARM_UP_TURNS = 200
MAX_GROWTH = 0.02
TURNS_PER_CONVERSATION = 25


class NumberingLanguageModel(FakeLanguageModel):
    """Says which conversation it is in, by its instructions, and how many questions it has read there."""

    async def reply(self, ask: Ask) -> AsyncIterator[FakeProgress]:
        await asyncio.sleep(0.001)
        questions = sum(message.role == "user" for message in ask.messages)
        yield FakeProgress(f"{ask.messages[0].content} {questions}.", finished="stop")


async def converse(address: str, name: str, turns: int) -> None:
    """One conversation with fake models. Raises AssertionError if a turn is lost or belongs elsewhere."""
    async with connected(address) as client:
        await configure(client, instructions=name)
        for number in range(1, turns + 1):
            await ask(client, np.full(12_000, 0.5, np.float32))
            text = await answer(client)
            assert text == f"{name} {number}.", f"{name}, turn {number}: {text!r}"


CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo", "Egypt": "Cairo",
    "Russia": "Moscow", "Greece": "Athens", "Poland": "Warsaw", "Portugal": "Lisbon",
}  # fmt: skip


class Questions:
    """Spoken questions, each of which has an answer that fits no other.

    Attributes:
        unanswered: responses that name no capital.
    """

    def __init__(self) -> None:
        voice, self.unanswered = Voice(ModelStore(hub=False).locate(DEFAULT_VOICE)), list[str]()
        self.audio = {name: voice.synthesize(Clause(f"What is the capital of {name}?", True)) for name in CAPITALS}

    async def converse(self, address: str, number: int, turns: int) -> None:
        """One conversation with real models. One that takes place at the same time is three countries ahead.

        Raises:
            AssertionError: a turn is lost, or its transcript or its response belongs to another one.
        """
        countries = list(CAPITALS)
        async with connected(address) as client:
            await configure(client)
            for turn in range(turns):
                country = countries[(turn + 3 * number) % len(countries)]
                await ask(client, self.audio[country])
                done = "conversation.item.input_audio_transcription.completed"
                heard, text = (await receive(client, done))["transcript"], await answer(client)
                named = [other for other in CAPITALS if other in heard]
                assert named in ([country], []), f"conversation {number}, turn {turn}, {country}: {heard!r}"
                capitals = [capital for capital in CAPITALS.values() if capital in text]
                assert capitals in ([CAPITALS[country]], []), f"conversation {number}, turn {turn}, {heard!r}: {text!r}"
                if not capitals:
                    self.unanswered.append(f"{heard} {text}")


async def configure(client: ClientConnection, **settings: Any) -> None:
    """Let the client end its turns itself."""
    update = {"type": "realtime", "audio": {"input": {"turn_detection": None}}, **settings}
    await client.send(json.dumps({"type": "session.update", "session": update}))
    await receive(client, "session.updated")


async def ask(client: ClientConnection, question: Samples) -> None:
    """Send one spoken turn, at 24 kHz, as fast as the server takes it."""
    for start in range(0, len(question), OUTPUT_RATE):
        audio = base64.b64encode(to_pcm16(question[start : start + OUTPUT_RATE])).decode()
        await client.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
    await client.send(json.dumps({"type": "input_audio_buffer.commit"}))
    await client.send(json.dumps({"type": "response.create"}))


async def answer(client: ClientConnection) -> str:
    """The text of the response, once it is complete."""
    done = await receive(client, "response.done")
    assert done["response"]["status"] == "completed", done["response"]
    return str(done["response"]["output"][0]["content"][0]["transcript"])


def resident_mb() -> float:
    """Memory of this process, server included."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


async def soak(
    turns: int, conversations: int, converse: Callable[[int, int], Awaitable[None]], memory_mb: Callable[[], float]
) -> int:
    """Hold conversations of 25 turns, several at a time; returns the exit status.

    Args:
        converse: holds the conversation with this number, with so many turns.
    """
    done, memory, began = 0, list[tuple[int, float]](), time.monotonic()
    each = min(TURNS_PER_CONVERSATION, -(-turns // conversations))
    while done < turns:
        await asyncio.gather(*(converse(done + number, each) for number in range(conversations)))
        done += conversations * each
        memory.append((done, memory_mb()))
        print(f"{done} turns, {memory[-1][1]:.1f} MB, {time.monotonic() - began:.0f} s", flush=True)
    warm = next(megabytes for count, megabytes in memory if count >= min(WARM_UP_TURNS, done))
    growth = memory[-1][1] / warm - 1
    print(f"no turn of {done} was lost or mixed up; memory grew by {100 * growth:.2f} % after {WARM_UP_TURNS} turns")
    return int(growth > MAX_GROWTH)


async def soak_fakes(turns: int, conversations: int) -> int:
    """With fake models; the memory is that of server and clients together."""
    with (
        patch.object(session, "SpeechDetector", LoudnessDetector),
        serving(new_language_model=NumberingLanguageModel, max_conversations=conversations + 4) as address,
    ):
        return await soak(
            turns, conversations, lambda n, each: converse(address, f"conversation {n}", each), resident_mb
        )


async def soak_model(turns: int, conversations: int, model: str) -> int:
    """With real models, in a server of its own, whose memory is measured."""
    questions = Questions()
    async with own_server(["--model", model]) as url:
        address = url.removeprefix("ws://").partition("/")[0]

        def memory_mb() -> float:
            text = httpx.get(f"http://{address}/metrics").text
            return float(re.findall(r"^process_resident_memory_bytes (\S+)", text, re.MULTILINE)[0]) / 1e6

        status = await soak(turns, conversations, partial(questions.converse, address), memory_mb)
    print(f"{len(questions.unanswered)} responses name no capital: {questions.unanswered[:5]}")
    return status


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--conversations", type=int, default=4, help="at the same time")
    parser.add_argument("--model", help="a real language model, and the real speech models; default: fakes")
    arguments = parser.parse_args()
    size = (arguments.turns, arguments.conversations)
    sys.exit(asyncio.run(soak_model(*size, arguments.model) if arguments.model else soak_fakes(*size)))
