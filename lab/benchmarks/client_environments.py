"""Environments of their own for clients that somebody else wrote, so that their packages never meet ours, and the
commands that run them."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.report.own_server import own_server

Report = dict[str, Any]
"""What a client says of itself."""

_TIMEOUT_S = 240.0
"""A conversation takes about 40 s."""


def install_npm_packages(folder: Path, packages: tuple[str, ...]) -> None:
    """Install npm packages into `folder`. Raises subprocess.CalledProcessError."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *packages], check=True)


@dataclass(frozen=True)
class Client:
    """A client's packages, pinned, and the script that talks through it: Python, or Node (`.mjs`)."""

    packages: tuple[str, ...]
    script: Path

    def command(self, folder: Path) -> list[str]:
        """The command that runs the script. The environment in `folder` is built first if it is missing or outdated."""
        installed = folder / "installed.txt"
        up_to_date = installed.exists() and installed.read_text() == "\n".join(self.packages)
        if self.script.suffix == ".mjs":
            if not up_to_date:
                install_npm_packages(folder, self.packages)
            argv = ["node", str(self.script)]
        else:
            python = folder / "bin" / "python"
            if not up_to_date:
                # A copied interpreter could not be run while another thread's child has it open.
                venv.create(folder, with_pip=True, clear=True, symlinks=True)
                subprocess.run([str(python), "-m", "pip", "install", "-q", *self.packages], check=True)
            argv = [str(python), str(self.script)]
        installed.write_text("\n".join(self.packages))
        return argv


async def report_of(argv: Sequence[str], url: str, *folders: Path) -> Report:
    """Run a client. Raises RuntimeError: it failed, or took too long.

    Args:
        folders: what its script takes after the server's address.
    """
    process = await asyncio.create_subprocess_exec(
        *argv, url, *map(str, folders),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip
    try:
        out, err = await asyncio.wait_for(process.communicate(), _TIMEOUT_S)
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
    lines = out.decode().strip().splitlines()
    if process.returncode != 0 or not lines:
        raise RuntimeError(err.decode().strip()[-2000:] or f"exit status {process.returncode}")
    report: Report = json.loads(lines[-1])
    return report


def run_clients(
    kind: str,
    clients: Mapping[str, Client],
    faults: Callable[[Report], list[str]],
    record: Callable[[Path], None] | None = None,
) -> None:
    """The command that runs clients one after the other and checks what they report.

    Args:
        kind: of the clients, which names their work folder.
        faults: what is wrong with a report.
        record: writes what the clients play into a folder, which they take before their own.
    """
    parser = argparse.ArgumentParser(description=f"Run {kind} clients that others wrote against the real models.")
    parser.add_argument("--clients", nargs="+", choices=clients, default=list(clients))
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / f"rejoinder-{kind}-clients")
    parser.add_argument("--url", help="a server that runs already, such as http://127.0.0.1:8000")
    parser.add_argument("server_options", nargs="*", help="options of `rejoinder serve`, after --")
    options = parser.parse_args()
    commands = {name: clients[name].command(options.work / name) for name in options.clients}

    async def run() -> int:
        failed, url = 0, options.url
        async with AsyncExitStack() as stack:
            folders = [] if record is None else [Path(stack.enter_context(tempfile.TemporaryDirectory()))]
            if record is not None:
                record(*folders)
            if url is None:
                address = await stack.enter_async_context(own_server(options.server_options))
                url = address.replace("ws://", "http://").removesuffix("/v1/realtime")
            for name, argv in commands.items():
                report: Report = {}
                try:
                    report = await report_of(argv, url, *folders, options.work / name)
                    wrong = faults(report)
                except RuntimeError as error:
                    wrong = [str(error)]
                failed += bool(wrong)
                print(f"{name}: {'FAILED' if wrong else 'passed'} {json.dumps(report)}", flush=True)
                for fault in wrong:
                    print(f"  {fault}")
        return failed

    sys.exit(asyncio.run(run()))
