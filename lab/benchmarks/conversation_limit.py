"""What callers get who come together: how many are admitted, and how quickly they are answered.

    python -m lab.benchmarks.conversation_limit [--callers 1 2 4 …] [--minutes 3] [-- serve's options]

So many callers at once ask questions aloud for some minutes, in conversations of six questions with a moment to think
after each answer. A caller who is refused tries again after five seconds. Callers and server share the machine. The
server starts with an empty data folder, and so with a trial, unless its options say otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import httpx
import numpy as np
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from agent.background_tasks import cancel
from lab.benchmarks.spoken_turn import record
from lab.simulator.microphone import Microphone
from voice.audio.codec import Samples, to_pcm16

_QUESTIONS = (
    "What is the capital of Italy?",
    "How many legs does a spider have?",
    "Which planet is closest to the sun?",
    "Who painted the Mona Lisa?",
    "What color is a ripe banana?",
    "Why is the sky blue?",
)
_THINKING_S = (3.0, 7.0)
_RETRY_S, _ANSWER_S = 5.0, 30.0


@dataclass
class Outcome:
    """What happened: latencies of turns in ms, and how often a caller was admitted, refused, or not answered."""

    latencies: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


async def converse(address: str, recordings: Sequence[Samples], outcome: Outcome, dice: random.Random) -> None:
    """One conversation, or one refusal."""
    async with connect(f"ws://{address}/v1/realtime", max_size=None, compression=None, open_timeout=30) as socket:
        first = json.loads(await socket.recv())
        if first["type"] == "error":
            outcome.counts["refused"] += 1
            await asyncio.sleep(_RETRY_S)
            return
        outcome.counts["admitted"] += 1
        await socket.send(
            json.dumps({"type": "session.update", "session": {"type": "realtime", "include": ["rejoinder.turn"]}})
        )

        async def send(block: Samples) -> None:
            audio = base64.b64encode(to_pcm16(block)).decode()
            await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))

        microphone = Microphone(send)
        streaming = asyncio.create_task(microphone.run())
        try:
            for recording in recordings:
                await asyncio.sleep(dice.uniform(*_THINKING_S))
                await microphone.play(recording)
                async with asyncio.timeout(_ANSWER_S):
                    while (event := json.loads(await socket.recv()))["type"] != "rejoinder.turn":
                        pass
                if event["latency_ms"] is not None:
                    outcome.latencies.append(event["latency_ms"])
        except TimeoutError:
            outcome.counts["not answered"] += 1
        finally:
            await cancel([streaming])


async def call_together(address: str, callers: int, minutes: float, recordings: Sequence[Samples]) -> Outcome:
    """Let callers come for some minutes."""
    outcome = Outcome()

    async def caller(number: int) -> None:
        dice = random.Random(number)
        await asyncio.sleep(dice.uniform(0, 3))
        while True:
            with suppress(ConnectionClosed, OSError):
                await converse(address, dice.sample(recordings, len(recordings)), outcome, dice)

    tasks = [asyncio.create_task(caller(number)) for number in range(callers)]
    await asyncio.sleep(60 * minutes)
    await cancel(tasks)
    return outcome


@asynccontextmanager
async def server(options: Sequence[str]) -> AsyncIterator[str]:
    """The address of a server with an empty data folder."""
    with tempfile.TemporaryDirectory() as folder:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cli", "serve", "--port", "0", *options, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "REJOINDER_DATA": folder},
        )  # fmt: skip
        assert process.stderr is not None  # it is a pipe
        while not (match := re.search(r"Ready: http://([^/]+)/", line := (await process.stderr.readline()).decode())):
            if not line:
                raise RuntimeError("the server did not start")
        draining = asyncio.create_task(process.stderr.read())
        try:
            yield match[1]
        finally:
            process.terminate()
            await draining
            await process.wait()


async def limit_of(address: str) -> str:
    """How many conversations the server admits now."""
    async with httpx.AsyncClient() as client:
        metrics = (await client.get(f"http://{address}/metrics")).text
    return str(int(float(metrics.split("\nrejoinder_limit ")[1].split()[0])))


async def run(callers: Sequence[int], minutes: float, options: Sequence[str]) -> None:
    """Print a row for each number of callers, each with a server of its own."""
    recordings = list(record(_QUESTIONS).values())
    print("| callers | limit, before and after | turns | p50, ms | p95, ms | admitted | refused | not answered |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for number in callers:
        async with server(options) as address:
            before = await limit_of(address)
            found = await call_together(address, number, minutes, recordings)
            after = await limit_of(address)
        p50, p95 = (round(float(np.quantile(found.latencies, share))) for share in (0.5, 0.95))
        counts = " | ".join(str(found.counts[name]) for name in ("admitted", "refused", "not answered"))
        print(f"| {number} | {before}, {after} | {len(found.latencies)} | {p50} | {p95} | {counts} |", flush=True)


def main() -> None:
    """Run with the arguments of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 2, 4, 6, 8])
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("options", nargs="*", help="of `rejoinder serve`, after --")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.callers, arguments.minutes, arguments.options))


if __name__ == "__main__":
    main()
