"""How soon an editor shows a suggestion: a recorded session of llama.vscode's requests, with the real model.

    python -m lab.benchmarks.editor_session [--model qwen2.5-coder-1.5b] [--places 8] [--hang-up-ms 100]

The time is the plug-in's: from the request to the whole response, which is the first suggestion that it shows. The
server's processor time stands next to it, for machines that do other work. A second run of the session hangs up on
every other request, as Continue does at the next key, and counts what that costs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import time
from contextlib import suppress
from typing import NamedTuple

import httpx
import numpy as np

import server.openmp  # noqa: F401 - before torch
from lab.benchmarks.editor_session.recording import EditorRequest, editor_requests
from lab.report.own_server import own_server
from model.hub.catalog import QWEN_15B

_TIMEOUT_S = 300.0

_COLUMNS = (
    "request", "number", "p50, s", "p95, s", "processor, p50, s", "p95, s", "tokens of the prompt", "of them cached",
)  # fmt: skip


class Answered(NamedTuple):
    """What one request took. `processor_s` is of all cores, and of what was asked before it and given up."""

    seconds: float
    processor_s: float
    prompt_tokens: int
    cached_tokens: int


async def replay(client: httpx.AsyncClient, places: int, hang_up_s: float | None = None) -> dict[str, list[Answered]]:
    """Send the session's requests, one after the other.

    Args:
        places: how many places of the document are edited.
        hang_up_s: when to hang up, before each request but the first is sent for good; None for never.

    Returns:
        By kind.
    """
    times = dict[str, list[Answered]]()
    for request in editor_requests():
        places -= request.kind == "moved"
        if places < 0:
            break
        before = await _processor_s(client)
        if hang_up_s is not None and request.kind != "context":
            with suppress(httpx.TimeoutException):
                await client.post("/infill", json=request.body, timeout=hang_up_s)
        times.setdefault(request.kind, []).append(await _timed(client, request, before))
    return times


async def _timed(client: httpx.AsyncClient, request: EditorRequest, processor_before: float) -> Answered:
    began = time.perf_counter()
    response = await client.post("/infill", json=request.body)
    taken = time.perf_counter() - began
    body = response.raise_for_status().json()
    if request.kind != "context":
        print(f"{taken:6.2f} s  {request.body['prompt']!r} → {body['content']!r}", file=sys.stderr)
    used = await _processor_s(client) - processor_before
    return Answered(taken, used, body["tokens_evaluated"], body["tokens_cached"])


async def _processor_s(client: httpx.AsyncClient) -> float:
    found = re.search(r"^process_cpu_seconds_total (\S+)", (await client.get("/metrics")).text, re.MULTILINE)
    return float(found[1]) if found else float("nan")


async def run(model: str, places: int, hang_up_s: float) -> None:
    """Print the table."""
    async with own_server(["--model", model]) as address:
        url = address.replace("ws://", "http://").removesuffix("/v1/realtime")
        async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S, trust_env=False) as client:
            print(f"| {' | '.join(_COLUMNS)} |\n|{'---|' * len(_COLUMNS)}")
            for suffix, limit in (
                ("", None),
                (f", each after one that hung up after {1000 * hang_up_s:.0f} ms", hang_up_s),
            ):
                for kind, rows in (await replay(client, places, limit)).items():
                    seconds, processor, prompt, cached = np.array(rows).T
                    spans = (np.quantile(column, share) for column in (seconds, processor) for share in (0.5, 0.95))
                    tokens = f"{np.median(prompt):.0f} | {np.median(cached):.0f}"
                    cells = f"{len(rows)} | {' | '.join(f'{span:.2f}' for span in spans)} | {tokens}"
                    print(f"| {kind}{suffix} | {cells} |", flush=True)
    print(f"\nload average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


def main() -> None:
    """Parse the arguments and replay the session."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=QWEN_15B.name)
    parser.add_argument("--places", type=int, default=8, help="how many places of the document are edited")
    parser.add_argument("--hang-up-ms", type=float, default=100.0)
    options = parser.parse_args()
    asyncio.run(run(options.model, options.places, options.hang_up_ms / 1000))


if __name__ == "__main__":
    main()
