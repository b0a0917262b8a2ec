"""Runs OpenAI's and LiteLLM's clients against the text API with the real models, and checks what they report.

    python -m lab.benchmarks.text_clients [--clients openai litellm] [--url http://127.0.0.1:8000] [-- serve's options]

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
from collections.abc import Sequence
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
}


def faults(report: dict[str, Any]) -> list[str]:
    """What is wrong with a client's report."""
    checks = {
        f"models: {report['models']}": len(report["models"]) == 1,
        f"chat: {report['chat']!r}": "paris" in str(report["chat"]).lower(),
        f"log probabilities of {report['scored']!r}": report["scored"] == report["chat"],
        "a stream differs from the whole": report["streamed"] == report["chat"],
        f"the function was called with {report['call']}": "oslo" in str(report["call"].get("city", "")).lower(),
        f"extracted: {report['extracted']}": report["extracted"] == {"name": "Mary Smith", "age": 42},
        f"response: {report['response']!r}": "paris" in str(report["response"]).lower(),
        f"transcript of our own speech: {report['transcript']!r}": "brown fox" in str(report["transcript"]).lower(),
    }
    return [fault for fault, passed in checks.items() if not passed]


async def run(names: Sequence[str], work: Path, url: str | None, server_options: Sequence[str]) -> int:
    """Run the clients one after the other; returns how many failed."""
    commands = {name: CLIENTS[name].command(work / name) for name in names}
    failed = 0
    async with AsyncExitStack() as stack:
        if url is None:
            address = await stack.enter_async_context(own_server(server_options))
            url = address.replace("ws://", "http://").removesuffix("/v1/realtime")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        for name, argv in commands.items():
            done = await asyncio.to_thread(
                subprocess.run, [*argv, url], env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S
            )
            lines = done.stdout.strip().splitlines()
            if done.returncode or not lines:
                report, wrong = {}, [done.stderr.strip()[-2000:]]
            else:
                report = json.loads(lines[-1])
                wrong = faults(report)
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
