"""Runs programs in new processes that may contact only the hub of a test (`hub_server.py`), with their own caches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.model.hub.hub_server import Hub

ROOT = Path(__file__).parents[3]

_COMMANDS = """
import sys
from cli.main import app
for command in sys.stdin.read().splitlines():
    try:
        app(command.split())
    except SystemExit as done:
        print("exit", done.code, flush=True)
"""


def environment(hub: Hub, folder: Path, **variables: str) -> dict[str, str]:
    """The variables of a process that may contact only `hub`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGINGFACE_"))}
    inherited |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "hf"), "REJOINDER_CACHE": str(folder / "cache")}
    return inherited | {"no_proxy": "127.0.0.1,localhost", "HF_HUB_DISABLE_TELEMETRY": "1"} | variables


def run_program(hub: Hub, folder: Path, program: str, *arguments: str, **variables: str) -> list[str]:
    """The lines that a Python program prints. It must succeed."""
    done = _run(hub, folder, program, *arguments, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def run_commands(hub: Hub, folder: Path, *commands: str) -> subprocess.CompletedProcess[str]:
    """Run commands of `rejoinder` one after the other; each prints `exit` and its status in the end."""
    done = _run(hub, folder, _COMMANDS, input="\n".join(commands), COLUMNS="300")
    done.check_returncode()
    return done


def _run(
    hub: Hub, folder: Path, program: str, *arguments: str, input: str | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        input=input,
        env=environment(hub, folder, **variables),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
