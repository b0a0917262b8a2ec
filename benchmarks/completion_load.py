"""Keeps a running server busy with completions, to measure spoken turns beside them.

    rejoinder serve --port 8000 --context 8192
    python -m benchmarks.completion_load --kind prompts         # in another terminal, until it is stopped
    rejoinder report --url ws://127.0.0.1:8000/v1/realtime      # in a third one

`prompts` are new texts of 4K tokens with answers of a few words, one after another; `completions` are two long stories
at a time.
"""

from __future__ import annotations

import asyncio
import random
from typing import Annotated, Any

import httpx
import typer

_WORDS = "river stone window garden bridge letter winter market silver candle forest harbor yellow quiet engine".split()

_PROMPT_WORDS = 3400
"""About 4,000 tokens with the template: nearly every word is one."""

_STORIES = 2


async def _complete(client: httpx.AsyncClient, text: str, max_tokens: int) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": max_tokens}
    response = await client.post("/v1/chat/completions", json=body)
    response.raise_for_status()
    usage: dict[str, Any] = response.json()["usage"]
    return usage


async def prompts(client: httpx.AsyncClient, number: int) -> None:
    """One long prompt after another, none like one before."""
    while True:
        draw = random.Random(number)
        words = " ".join(draw.choice(_WORDS) for _ in range(_PROMPT_WORDS))
        usage = await _complete(client, f"{words}\n\nWhich word comes first?", 8)
        print(f"read {usage['prompt_tokens']} tokens")
        number += 1


async def stories(client: httpx.AsyncClient, number: int) -> None:
    """One long completion after another."""
    while True:
        usage = await _complete(client, f"Write a long story about the number {number}.", 600)
        print(f"wrote {usage['completion_tokens']} tokens")
        number += _STORIES


async def run(url: str, kind: str) -> None:
    """Send requests until the process is stopped."""
    async with httpx.AsyncClient(base_url=url, timeout=None) as client:
        if kind == "prompts":
            await prompts(client, random.randrange(1 << 30))
        else:
            await asyncio.gather(*(stories(client, number) for number in range(_STORIES)))


def main(
    url: str = "http://127.0.0.1:8000", kind: Annotated[str, typer.Option(help="prompts or completions")] = "prompts"
) -> None:
    """Send requests until the process is stopped."""
    asyncio.run(run(url, kind))


if __name__ == "__main__":
    typer.run(main)
