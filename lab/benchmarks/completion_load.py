"""How much completions delay spoken turns, recognition and synthesis included, with the real models.

    python -m lab.benchmarks.completion_load [--rounds 4] [--load prompts] [--model NAME]

The same spoken questions are asked alone and while programs use the server's language model: `prompts` are new texts of
4K tokens with answers of a few words, one after another; `completions` are two long stories at a time. Each question is
asked in all ways before the next one, so that all meet the same state of the machine. Every turn has a conversation of
its own. `speaker_delay` measures the language model's part alone.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np

from lab.benchmarks.spoken_turn import record, speak
from lab.report.own_server import own_server

_QUESTIONS = (
    "What is the capital of Portugal?", "Why is the sea salty?", "How many legs does a spider have?",
    "Who painted the Mona Lisa?", "What do pandas eat?", "How long does it take to boil an egg?",
    "Which month has the fewest days?", "What is the opposite of generous?", "Where do penguins live?",
    "Can you recommend a card game for two?",
)  # fmt: skip

_WORDS = "river stone window garden bridge letter winter market silver candle forest harbor yellow quiet engine".split()

_PROMPT_WORDS = 3400
"""About 4,000 tokens with the template: nearly every word is one."""

_CONTEXT = 8192

_STORIES = 2

_LEAD_S = 1.0
"""From the start of a load to the turn: background requests wait half a second after a speaker's."""


class Load:
    """What programs ask of a server, counted.

    Attributes:
        requests, tokens: that were answered, and the tokens of their prompts and answers.
    """

    def __init__(self, address: str) -> None:
        self._client = httpx.AsyncClient(base_url=f"http://{address}", timeout=None)
        self.requests = self.tokens = 0

    async def _complete(self, text: str, max_tokens: int) -> None:
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": max_tokens}
        response = await self._client.post("/v1/chat/completions", json=body)
        response.raise_for_status()
        self.requests, self.tokens = self.requests + 1, self.tokens + response.json()["usage"]["total_tokens"]

    async def prompts(self) -> None:
        """One long prompt after another, none like one before."""
        while True:
            words = " ".join(random.choice(_WORDS) for _ in range(_PROMPT_WORDS))
            await self._complete(f"{words}\n\nWhich word comes first?", 8)

    async def completions(self) -> None:
        """Long completions, a few at a time."""

        async def write() -> None:
            while True:
                await self._complete(f"Write a long story about the number {random.randrange(10_000)}.", 600)

        await asyncio.gather(*(write() for _ in range(_STORIES)))

    async def close(self) -> None:
        """Hang up."""
        await self._client.aclose()


async def _beside(work: Callable[[], Awaitable[None]], turn: Awaitable[float]) -> float:
    """A turn while a load works. A load that fails fails it."""
    loading = asyncio.ensure_future(work())
    try:
        await asyncio.sleep(_LEAD_S)
        latency = await turn
        if loading.done():
            loading.result()
        return latency
    finally:
        loading.cancel()
        with suppress(asyncio.CancelledError):
            await loading


async def measure(url: str, kinds: Sequence[str], rounds: int) -> dict[str, list[float]]:
    """Latencies in ms of the turns alone and beside each kind of load."""
    recordings, load = record(_QUESTIONS), Load(urlsplit(url).netloc)

    async def turn(question: str) -> float:
        return (await speak(url, recordings[question], {})).latency_ms

    latencies: dict[str, list[float]] = {"alone": [], **{kind: [] for kind in kinds}}
    await turn(_QUESTIONS[0])  # reads the instructions
    for _ in range(rounds):
        for question in _QUESTIONS:
            for kind, own in latencies.items():
                work = None if kind == "alone" else getattr(load, kind)
                own.append(await (turn(question) if work is None else _beside(work, turn(question))))
                print(json.dumps({"load": kind, "question": question, "ms": round(own[-1])}), flush=True)
    print(f"beside the turns {load.requests} requests with {load.tokens} tokens were answered")
    await load.close()
    return latencies


def report(latencies: dict[str, list[float]]) -> str:
    """The table."""
    alone = np.array(latencies["alone"])
    lines = [
        "| load | turns | p50, ms | p95, ms | more than alone, p95 | median of pairs |",
        "|---|---|---|---|---|---|",
    ]
    for kind, own in latencies.items():
        p50, p95 = np.percentile(own, (50, 95))
        more = f"{p95 - np.percentile(alone, 95):+.0f} | {np.median(np.array(own) - alone):+.0f}"
        lines.append(f"| {kind} | {len(own)} | {p50:.0f} | {p95:.0f} | {more} |")
    return "\n".join(lines)


async def run(kinds: Sequence[str], rounds: int, server_options: Sequence[str]) -> dict[str, list[float]]:
    """Start a server and measure."""
    async with own_server(["--context", str(_CONTEXT), *server_options]) as url:
        return await measure(url, kinds, rounds)


def main() -> None:
    """Parse the arguments and print the table. Other options are the server's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=4, help=f"each asks {len(_QUESTIONS)} questions in every way")
    parser.add_argument("--load", action="append", choices=("prompts", "completions"), help="default: both")
    options, server_options = parser.parse_known_args()
    kinds: list[Any] = options.load or ["prompts", "completions"]
    print(report(asyncio.run(run(kinds, options.rounds, server_options))))


if __name__ == "__main__":
    main()
