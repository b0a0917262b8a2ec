"""A soak of the whole server with fake models: thousands of turns over real sockets, in several conversations.

Every response must belong to its own conversation and turn, none may be lost, and memory may not grow by more than 2 %
after the first 200 turns.

    python -m benchmarks.soak --turns 2000
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import gc
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from websockets.asyncio.client import ClientConnection

from tests.fakes import FakeLanguageModel, FakeProgress, LoudnessDetector
from tests.server.live_server import connected, receive, serving
from voice import session
from voice.audio.codec import to_pcm16
from voice.language_model import Message

WARM_UP_TURNS = 200
MAX_GROWTH = 0.02
TURNS_PER_CONVERSATION = 25


class NumberingLanguageModel(FakeLanguageModel):
    """Says which conversation it is in, by its instructions, and how many questions it has read there."""

    async def reply(self, messages: Sequence[Message], **options: Any) -> AsyncIterator[FakeProgress]:  # type: ignore[override]
        await asyncio.sleep(0.001)
        questions = sum(message.role == "user" for message in messages)
        yield FakeProgress(f"{messages[0].content} {questions}.", finished="stop")


async def converse(address: str, name: str, turns: int) -> None:
    """One conversation. Raises AssertionError if a turn is lost or belongs elsewhere."""
    async with connected(address) as client:
        update = {"type": "realtime", "instructions": name, "audio": {"input": {"turn_detection": None}}}
        await client.send(json.dumps({"type": "session.update", "session": update}))
        await receive(client, "session.updated")
        for number in range(1, turns + 1):
            text = await ask(client)
            assert text == f"{name} {number}.", f"{name}, turn {number}: {text!r}"


async def ask(client: ClientConnection) -> str:
    """One spoken turn; returns the text of the response."""
    audio = base64.b64encode(to_pcm16(np.full(12_000, 0.5, np.float32))).decode()
    await client.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
    await client.send(json.dumps({"type": "input_audio_buffer.commit"}))
    await client.send(json.dumps({"type": "response.create"}))
    done = await receive(client, "response.done")
    assert done["response"]["status"] == "completed", done["response"]
    return str(done["response"]["output"][0]["content"][0]["transcript"])


def resident_mb() -> float:
    """Memory of this process, server included."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


async def soak(turns: int, conversations: int) -> int:
    """Run the soak; returns the exit status."""
    with (
        patch.object(session, "SpeechDetector", LoudnessDetector),
        serving(new_language_model=NumberingLanguageModel, max_conversations=conversations + 4) as address,
    ):
        done, memory, began = 0, list[tuple[int, float]](), time.monotonic()
        while done < turns:
            names = [f"conversation {done + n}" for n in range(conversations)]
            await asyncio.gather(*(converse(address, name, TURNS_PER_CONVERSATION) for name in names))
            done += conversations * TURNS_PER_CONVERSATION
            memory.append((done, resident_mb()))
            print(f"{done} turns, {memory[-1][1]:.1f} MB, {time.monotonic() - began:.0f} s", flush=True)
    warm = next(megabytes for count, megabytes in memory if count >= min(WARM_UP_TURNS, done))
    growth = memory[-1][1] / warm - 1
    print(f"no turn of {done} was lost or mixed up; memory grew by {100 * growth:.2f} % after {WARM_UP_TURNS} turns")
    return int(growth > MAX_GROWTH)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--conversations", type=int, default=4)
    arguments = parser.parse_args()
    sys.exit(asyncio.run(soak(arguments.turns, arguments.conversations)))
