"""What a real model makes of the twenty tasks of `tasks.py`, through the Responses API. There is no target.

python -m lab.benchmarks.agent_loops [--model qwen2.5-coder-1.5b] [--tokens 600]
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter

import httpx

import server.openmp  # noqa: F401 - before torch
from lab.benchmarks.agent_loops.shop import Shop
from lab.benchmarks.agent_loops.tasks import TASKS, Task
from lab.report.own_server import own_server
from model.hub.catalog import QWEN_15B
from tests.agent.tools.mcp_http_server import mcp_server

_INSTRUCTIONS = "You help in a shop. Look everything up with the tools, step by step, and then answer in a sentence."

_TIMEOUT_S = 900.0


async def ask(client: httpx.AsyncClient, task: Task, url: str, tokens: int) -> tuple[bool, str]:
    """Whether the answer contains what it should and the loop has ended by itself, and what happened."""
    shop = {"type": "mcp", "server_label": "shop", "server_url": url, "require_approval": "never"}
    body = {"input": task.request, "instructions": _INSTRUCTIONS, "tools": [shop], "max_output_tokens": tokens}
    began = time.perf_counter()
    answered = (
        (await client.post("/v1/responses", json={**body, "temperature": 0, **task.options})).raise_for_status().json()
    )
    seconds = time.perf_counter() - began
    calls = [item for item in answered["output"] if item["type"] == "mcp_call"]
    parts = [part for item in answered["output"] if item["type"] == "message" for part in item["content"]]
    text = " ".join(part["text"] for part in parts)
    stopped = answered["rejoinder"]["stopped_by"]
    named = ", ".join(f"{number} {name}" for name, number in Counter(call["name"] for call in calls).items()) or "none"
    right = answered["status"] == "completed" and stopped is None and task.contains.lower() in text.lower()
    return right, f"{named} ({stopped or answered['status']}, {seconds:.0f} s) → {text!r}"


async def run(model: str, tokens: int) -> None:
    """Ask all tasks, and print the figures."""
    shop, right, judged = Shop(), 0, 0
    with mcp_server(shop.server) as (url, _):
        async with own_server(["--model", model, "--allow-mcp-server", url]) as address:
            base = address.replace("ws://", "http://").removesuffix("/v1/realtime")
            async with httpx.AsyncClient(base_url=base, timeout=_TIMEOUT_S, trust_env=False) as client:
                for task in TASKS:
                    shop.begin(task.faults)
                    is_right, happened = await ask(client, task, url, tokens)
                    judged += bool(task.contains)
                    right += is_right and bool(task.contains)
                    mark = " " if not task.contains else "+" if is_right else "-"
                    print(f"{mark} {task.name}: {happened}", flush=True)
    print(f"{model}: {right} of the {judged} tasks with an answer are right; the others show how their loops end")


def main() -> None:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=QWEN_15B.name)
    parser.add_argument("--tokens", type=int, default=600, help="longest response, all steps together")
    options = parser.parse_args()
    asyncio.run(run(options.model, options.tokens))


if __name__ == "__main__":
    main()
