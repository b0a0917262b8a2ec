"""Runs clients that others wrote against the text API with the real models, and checks what they report.

    python -m lab.benchmarks.text_clients [--clients openai vercel …] [--url http://127.0.0.1:8000] [-- serve's options]

The environments stay in the work folder, so that a second run starts at once. The clients themselves are unmodified.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import server.openmp  # noqa: F401 - before torch
from lab.benchmarks.client_environments import Client
from lab.report.own_server import own_server

_SCRIPTS = Path(__file__).parent

_TIMEOUT_S = 240.0

CLIENTS = {
    "openai": Client(("openai==3.54.0",), _SCRIPTS / "openai_client.py"),
    "litellm": Client(("litellm==1.106.2", "mcp"), _SCRIPTS / "litellm_client.py"),
    "langchain": Client(("langchain-openai==1.7.4",), _SCRIPTS / "langchain_client.py"),
    "cohere": Client(("cohere==7.3.1",), _SCRIPTS / "cohere_client.py"),
    "vercel": Client(("ai@7.0.173", "@ai-sdk/openai-compatible@3.0.92", "zod@4.6.7"), _SCRIPTS / "vercel_client.mjs"),
}

PERSON = {"name": "Mary Smith", "age": 42}


def _names_paris(text: Any) -> bool:
    return "paris" in str(text).lower()


def _asks_for_oslo(arguments: Any) -> bool:
    return "oslo" in str(arguments.get("city", "")).lower()


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "models": lambda models: len(models) == 1,
    "chat": _names_paris,
    "streamed": _names_paris,
    "streamed_tokens": lambda tokens: tokens > 0,
    "call": _asks_for_oslo,
    "streamed_call": _asks_for_oslo,
    "after_call": bool,
    "extracted": PERSON.__eq__,
    "streamed_object": PERSON.__eq__,
    "response": _names_paris,
    "ranked": lambda indices: len(indices) == 2 and indices[0] == 1,
    "ranked_texts": lambda texts: len(texts) == 3 and "boiler" in texts[0],
    "probabilities": lambda scores: len(scores) == 3 and scores == sorted(scores, reverse=True),
    "transcript": lambda words: "brown fox" in words.lower(),
}
"""What each field of a report must be. A client that has no such API leaves the field out."""


def faults(report: dict[str, Any]) -> list[str]:
    """What is wrong with a client's report."""
    wrong = [f"{name}: {value!r}" for name, value in report.items() if name in _CHECKS and not _CHECKS[name](value)]
    same = {report[name] for name in ("chat", "streamed", "scored") if name in report}
    return wrong if len(same) <= 1 else [*wrong, f"the text differs between requests: {same}"]


def run_client(command: Sequence[str], url: str, folder: Path) -> dict[str, Any]:
    """The report of a client. Raises RuntimeError: it failed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*command, url, str(folder)], env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise RuntimeError(done.stderr.strip()[-2000:])
    report: dict[str, Any] = json.loads(lines[-1])
    return report


async def run(names: Sequence[str], work: Path, url: str | None, server_options: Sequence[str]) -> int:
    """Run the clients one after the other; returns how many failed."""
    commands = {name: CLIENTS[name].command(work / name) for name in names}
    failed = 0
    async with AsyncExitStack() as stack:
        if url is None:
            address = await stack.enter_async_context(own_server(server_options))
            url = address.replace("ws://", "http://").removesuffix("/v1/realtime")
        for name, argv in commands.items():
            report: dict[str, Any] = {}
            try:
                report = await asyncio.to_thread(run_client, argv, url, work / name)
                wrong = faults(report)
            except RuntimeError as error:
                wrong = [str(error)]
            failed += bool(wrong)
            print(f"{name}: {'FAILED' if wrong else 'passed'} {json.dumps(report)}")
            for fault in wrong:
                print(f"  {fault}")
    return failed


def main() -> None:
    """Parse the arguments and run the clients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "rejoinder-text-clients")
    parser.add_argument("--url", help="a server that runs already, such as http://127.0.0.1:8000")
    parser.add_argument("server_options", nargs="*", help="options of `rejoinder serve`, after --")
    options = parser.parse_args()
    sys.exit(asyncio.run(run(options.clients, options.work, options.url, options.server_options)))


if __name__ == "__main__":
    main()
