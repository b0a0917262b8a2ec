"""How soon an editor shows a suggestion: a session of llama.vscode's requests, with the real model.

    python -m lab.benchmarks.editor_session [--model qwen2.5-coder-1.5b] [--hang-up-ms 100]

The time is the plug-in's: from the request to the whole response, which is the first suggestion that it shows. A second
run of the session hangs up on every other request, as Continue does at the next key, and counts what that costs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from contextlib import suppress

import httpx
import numpy as np

import server.openmp  # noqa: F401 - before torch
from lab.benchmarks.editor_session.plug_in import EditorRequest, editor_requests
from lab.report.own_server import own_server
from model.hub.catalog import QWEN_15B

_TIMEOUT_S = 120.0


async def replay(client: httpx.AsyncClient, hang_up_s: float | None = None) -> dict[str, list[tuple[float, int, int]]]:
    """Send the session's requests, one after the other.

    Args:
        hang_up_s: when to hang up, before each request but the first is sent for good; None for never.

    Returns:
        By kind: seconds, tokens read and tokens that were in the cache.
    """
    times = dict[str, list[tuple[float, int, int]]]()
    for request in editor_requests():
        if hang_up_s is not None and request.kind != "context":
            with suppress(httpx.TimeoutException):
                await client.post("/infill", json=request.body, timeout=hang_up_s)
        times.setdefault(request.kind, []).append(await _timed(client, request))
    return times


async def _timed(client: httpx.AsyncClient, request: EditorRequest) -> tuple[float, int, int]:
    began = time.perf_counter()
    response = await client.post("/infill", json=request.body)
    taken = time.perf_counter() - began
    body = response.raise_for_status().json()
    if request.kind != "context":
        print(f"{taken:6.2f} s  {request.body['prompt']!r} → {body['content']!r}", file=sys.stderr)
    return taken, body["tokens_evaluated"], body["tokens_cached"]


async def run(model: str, hang_up_s: float) -> None:
    """Print the table."""
    columns = ("request", "number", "p50, s", "p95, s", "tokens of the prompt", "of them cached")
    async with own_server(["--model", model]) as address:
        url = address.replace("ws://", "http://").removesuffix("/v1/realtime")
        async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S, trust_env=False) as client:
            print(
                "| request | number | p50, s | p95, s | tokens of the prompt | of them cached |\n|---|---|---|---|---|---|"
            )
            for suffix, limit in (
                ("", None),
                (f", each after one that hung up after {1000 * hang_up_s:.0f} ms", hang_up_s),
            ):
                for kind, rows in (await replay(client, limit)).items():
                    seconds, prompt, cached = (np.array(column) for column in zip(*rows, strict=True))
                    p50, p95 = np.quantile(seconds, (0.5, 0.95))
                    cells = f"{len(rows)} | {p50:.2f} | {p95:.2f} | {np.median(prompt):.0f} | {np.median(cached):.0f}"
                    print(f"| {kind}{suffix} | {cells} |", flush=True)
    print(f"\nload average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


def main() -> None:
    """Parse the arguments and replay the session."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=QWEN_15B.name)
    parser.add_argument("--hang-up-ms", type=float, default=100.0)
    options = parser.parse_args()
    asyncio.run(run(options.model, options.hang_up_ms / 1000))


if __name__ == "__main__":
    main()
