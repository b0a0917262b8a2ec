"""Clients that others wrote, unmodified and in environments of their own, against the real models. The openai package
is another one that CI runs (`test_clients.py`); `lab.benchmarks.realtime_clients` and `text_clients` run more."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.benchmarks.client_environments import Client, report_of
from lab.benchmarks.realtime_clients.__main__ import CLIENTS, faults, record_sentences
from lab.benchmarks.text_clients import __main__ as text_clients
from tests.e2e.conftest import skip_or_fail
from tests.real_time import retried_under_load

Installed = dict[str, tuple[list[str], Path]]
"""The command and the folder of each client."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """All of them, installed at the same time: most of it is waiting for packages."""
    if shutil.which("npm") is None:
        skip_or_fail('npm is not installed (pip install -e ".[test]")')
    clients: dict[str, Client] = {"agents": CLIENTS["agents"]}
    clients |= {name: text_clients.CLIENTS[name] for name in ("vercel", "langchain", "cohere")}
    folders = {name: tmp_path_factory.mktemp(name) / "packages" for name in clients}
    with ThreadPoolExecutor() as pool:
        try:
            commands = list(pool.map(lambda name: clients[name].command(folders[name]), clients))
        except subprocess.CalledProcessError as error:
            skip_or_fail(f"a client could not be installed ({error})")
            raise
    return {name: (command, folders[name]) for name, command in zip(clients, commands, strict=True)}


@retried_under_load(attempts=2)
async def test_openais_agents_speak_are_interrupted_and_call_a_function(
    server: str, installed: Installed, tmp_path: Path
) -> None:
    command, folder = installed["agents"]
    record_sentences(tmp_path)
    try:
        report = await report_of(command, server, tmp_path, folder)
    except RuntimeError as error:
        raise AssertionError(f"the client failed: {error}") from None
    assert faults(report) == []


@pytest.mark.parametrize("name", ["vercel", "langchain"])
async def test_clients_of_the_text_api_stream_call_functions_and_get_structured_output(
    server: str, installed: Installed, name: str
) -> None:
    command, folder = installed[name]
    assert text_clients.faults(await report_of(command, server, folder)) == []


async def test_coheres_client_ranks_passages(server: str, installed: Installed) -> None:
    command, folder = installed["cohere"]
    assert text_clients.faults(await report_of(command, server, folder)) == []
