"""Stage times of spoken turns against a running server, and the server's peak memory.

    rejoinder serve --port 8000
    python -m tests.bench.turn [ws://127.0.0.1:8000] [TURNS]

A Realtime client speaks questions in real time, with the shipped voice, and reads each turn's timeline.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import Any

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table
from websockets.asyncio.client import ClientConnection, connect

from model.store import Store
from voice.audio import SPEAKING_RATE, Samples, to_pcm16
from voice.clauses import Clause
from voice.timeline import percentile
from voice.tts import Voice

QUESTIONS = [
    "What is the capital of France?",
    "How do I boil an egg?",
    "Tell me a joke.",
    "What is the tallest mountain in the world?",
    "Who wrote Romeo and Juliet?",
    "How many days are there in a year?",
    "What should I wear when it rains?",
    "Can you help me plan a birthday party for my daughter?",
    "Why is the sky blue?",
    "What is two plus two?",
    "Where do penguins live?",
    "How long does it take to fly from London to New York?",
]


PATIENCE_S = 20
"""A turn without an answer for this long was missed."""


async def speak(client: ClientConnection, sound: Samples) -> None:
    block = SPEAKING_RATE // 50
    for start in range(0, len(sound), block):
        audio = base64.b64encode(to_pcm16(sound[start : start + block])).decode()
        await client.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
        await asyncio.sleep(0.02)


async def one_turn(client: ClientConnection, sound: Samples) -> dict[str, Any] | None:
    """The turn's timeline, or None when no answer came."""
    speaking = asyncio.create_task(speak(client, sound))
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                event: dict[str, Any] = json.loads(await client.recv())
                if event["type"] == "rejoinder.turn" and event["latency_ms"] is not None:
                    return event
    except TimeoutError:
        return None
    finally:
        await speaking


async def main(url: str, count: int) -> None:
    voice = Voice(Store().locate("en_US-joe-medium"))
    silence = np.zeros(6 * SPEAKING_RATE, np.float32)
    turns = []
    async with connect(f"{url}/v1/realtime", max_size=None) as client:
        settings = {"type": "realtime", "include": ["rejoinder.turn"]}
        await client.send(json.dumps({"type": "session.update", "session": settings}))
        for n in range(count):
            sound = voice.say(Clause(QUESTIONS[n % len(QUESTIONS)], True))
            turn = await one_turn(client, np.concatenate((0.8 * sound, silence)))
            if turn is None:
                print("no answer to:", QUESTIONS[n % len(QUESTIONS)])
            else:
                turns.append(turn)
    rows = {name: [turn["stages_ms"][name] for turn in turns] for name in turns[0]["stages_ms"]}
    rows["turn latency"] = [turn["latency_ms"] for turn in turns]
    table = Table("stage, ms", "p50", "p95", "max")
    for name, values in rows.items():
        table.add_row(
            name, *(f"{value:.0f}" for value in (percentile(values, 0.5), percentile(values, 0.95), max(values)))
        )
    Console().print(table)
    async with httpx.AsyncClient() as web:
        health = (await web.get(url.replace("ws", "http", 1) + "/healthz")).json()
    Console().print(f"{len(turns)} of {count} turns answered; peak memory of the server {health['peak_memory_mb']} MB")


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    asyncio.run(main(given.get(1, "ws://127.0.0.1:8000"), int(given.get(2, len(QUESTIONS)))))
