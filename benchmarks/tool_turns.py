"""What a function call adds to a spoken turn, over loopback, with the real models.

    python -m benchmarks.tool_turns --model qwen2.5-coder-0.5b

The same spoken questions in three kinds of session that take turns: without functions; with functions on offer, of
which none must be called; and with a call required, whose result the client returns at once. Every turn has a
conversation of its own. The latency is from the last sample of the question to the first audible sample of the answer.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection, connect

import server.openmp  # noqa: F401 - before torch
from model.hub.store import ModelStore
from server.deploy.runtime import DEFAULT_VOICE
from server.report.corpus import bounds_ms
from server.report.own_server import own_server
from server.simulator.microphone import Microphone
from server.simulator.player import Player
from voice.audio.codec import Samples, from_pcm16, to_pcm16
from voice.clauses import Clause
from voice.tts import Voice

_INSTRUCTIONS = "You are a friendly voice assistant. Answer in one or two short sentences."
"""A client that brings functions brings instructions, too."""

_SETTLE_S = 1.5
"""From the configuration of a session to the question: a person takes longer to speak, and the server reads ahead."""

_TIMEOUT_S = 20.0

_LISTEN_S = 0.7
"""How long the answer is listened to. The rest does not matter, and leaves the processor for the next turn."""


@dataclass(frozen=True)
class Question:
    """A question, the function that answers it, and what that function returns."""

    text: str
    function: str
    output: str


QUESTIONS = (
    Question("What is the weather like in Lisbon today?", "get_weather", "It is sunny in Lisbon, twenty-four degrees."),
    Question("What time is it in Toronto right now?", "get_time", "It is a quarter past nine in Toronto."),
    Question(
        "How much does a train ticket to Vienna cost?", "get_price", "A train ticket to Vienna costs forty euros."
    ),
    Question("Is it cold in Helsinki this evening?", "get_weather", "It is two degrees below zero in Helsinki."),
    Question("How late is it in Nairobi?", "get_time", "It is half past four in Nairobi."),
    Question(
        "What is the price of a ferry ticket to Dover?", "get_price", "A ferry ticket to Dover costs thirty pounds."
    ),
)


def _function(name: str, description: str, argument: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "name": name, "description": description, "parameters": parameters}


FUNCTIONS = [
    _function("get_weather", "The weather in a city now", "city"),
    _function("get_time", "The time in a city now", "city"),
    _function("get_price", "The price of an article or a ticket", "article"),
]

KINDS: dict[str, dict[str, Any]] = {
    "no functions": {},
    "functions on offer": {"tools": FUNCTIONS, "tool_choice": "auto"},
    "call required": {"tools": FUNCTIONS, "tool_choice": "required"},
}


@dataclass(frozen=True)
class Turn:
    """One turn. Times are ms after the last sample of the question.

    Attributes:
        called_ms: when the call was complete; None if there was none.
        latency_ms: when the answer became audible.
        answer: what it began with.
    """

    kind: str
    question: str
    called_ms: float | None
    latency_ms: float
    answer: str


class _Client:
    """Speaks one question, and returns the results of calls at once."""

    def __init__(self, socket: ClientConnection, output: str) -> None:
        self._socket, self._output = socket, output
        self.player, self.audible, self.answer = Player(), asyncio.Event(), ""
        self.called_at: float | None = None
        self.event_types: list[str] = []
        self._must_respond = False

    async def send(self, type: str, **fields: Any) -> None:
        await self._socket.send(json.dumps({"type": type, **fields}))

    async def send_audio(self, block: Samples) -> None:
        await self.send("input_audio_buffer.append", audio=base64.b64encode(to_pcm16(block)).decode())

    async def read(self) -> None:
        async for frame in self._socket:
            now, event = time.monotonic(), json.loads(frame)
            self.event_types.append(event["type"])
            match event["type"]:
                case "error":
                    raise RuntimeError(event["error"]["message"])
                case "response.function_call_arguments.done":
                    self.called_at, self._must_respond = now, True
                    item = {"type": "function_call_output", "call_id": event["call_id"], "output": self._output}
                    await self.send("conversation.item.create", item=item)
                case "response.done" if self._must_respond:
                    self._must_respond = False
                    await self.send("response.create")
                case "response.output_audio.delta":
                    samples = from_pcm16(base64.b64decode(event["delta"]))
                    if self.player.push(now, event["response_id"], event["item_id"], samples).audible is not None:
                        self.audible.set()
                case "response.output_audio_transcript.delta":
                    self.answer += event["delta"]


async def speak(url: str, kind: str, question: Question, recording: Samples) -> Turn:
    """One conversation of one turn. Raises RuntimeError, TimeoutError."""
    async with connect(url, max_size=None, compression=None) as socket:
        client = _Client(socket, question.output)
        microphone = Microphone(client.send_audio)
        await client.send("session.update", session={"type": "realtime", "instructions": _INSTRUCTIONS, **KINDS[kind]})
        tasks = [asyncio.create_task(client.read()), asyncio.create_task(microphone.run())]
        try:
            await asyncio.sleep(_SETTLE_S)
            start = await microphone.play(recording)
            audible = asyncio.create_task(client.audible.wait())
            await asyncio.wait([audible, *tasks], timeout=_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
            if not client.audible.is_set():
                audible.cancel()
                for task in tasks:
                    if task.done():
                        task.result()
                raise TimeoutError(f"no answer to {question.text!r} ({kind}), only {client.event_types}")
            await asyncio.sleep(_LISTEN_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    speech_end = start + bounds_ms(recording)[1] / 1000
    first_audible = client.player.first_audible()
    assert first_audible is not None
    called_ms = None if client.called_at is None else 1000 * (client.called_at - speech_end)
    return Turn(kind, question.text, called_ms, 1000 * (first_audible - speech_end), client.answer.strip())


async def measure(url: str, rounds: int) -> list[Turn]:
    """Every question in every kind of session, `rounds` times. The first turn of each kind, which reads the prompt for
    the first time, is not measured."""
    voice = Voice(ModelStore(hub=False).locate(DEFAULT_VOICE))
    recordings = {question: voice.synthesize(Clause(question.text, True)) for question in QUESTIONS}
    for kind in KINDS:
        await speak(url, kind, QUESTIONS[0], recordings[QUESTIONS[0]])
    turns = []
    for _ in range(rounds):
        for question in QUESTIONS:
            for kind in KINDS:
                turns.append(await speak(url, kind, question, recordings[question]))
                print(json.dumps(asdict(turns[-1])), flush=True)
    return turns


def report(turns: Sequence[Turn]) -> str:
    """The table: latencies of each kind, and how much longer its turns took than those without functions."""
    by_kind: dict[str, list[Turn]] = defaultdict(list)
    for turn in turns:
        by_kind[turn.kind].append(turn)
    plain = np.array([turn.latency_ms for turn in by_kind["no functions"]])
    lines = [
        "| session | n | called | latency, median | p95 | more than without, median of pairs |",
        "|---|---|---|---|---|---|",
    ]
    for kind, own in by_kind.items():
        latencies = np.array([turn.latency_ms for turn in own])
        called = [turn.called_ms for turn in own if turn.called_ms is not None]
        after = f"{len(called)}" + (f", after {median(called):.0f} ms" if called else "")
        lines.append(
            f"| {kind} | {len(own)} | {after} | {median(latencies):.0f} ms | {np.percentile(latencies, 95):.0f} ms | "
            f"{np.median(latencies - plain):+.0f} ms |"
        )
    return "\n".join(lines)


async def run(rounds: int, server_options: Sequence[str]) -> list[Turn]:
    """Start a server and measure."""
    async with own_server(server_options) as url:
        return await measure(url, rounds)


def main() -> None:
    """Parse the arguments and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--rounds", type=int, default=2, help=f"each asks {len(QUESTIONS)} questions in {len(KINDS)} ways"
    )
    options, server_options = parser.parse_known_args()
    print(report(asyncio.run(run(options.rounds, server_options))), file=sys.stdout)


if __name__ == "__main__":
    main()
