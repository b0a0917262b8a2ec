"""`rejoinder usage`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app as cli
from server.access.usage import Usage, UsageLog

PRICES = '[prices]\ncurrency = "EUR"\nmillion_output_tokens = 2\ncpu_hour = 1\n[prices.hosted]\naudio_in_minute = 0.5\n'


@pytest.fixture
def data(tmp_path: Path) -> Path:
    log = UsageLog(tmp_path / "usage.sqlite")
    log.add("alice", Usage(audio_in_s=120, output_tokens=500_000, cpu_s=1800))
    log.add("", Usage(turns=3))
    log.close()
    (tmp_path / "prices.toml").write_text(PRICES)
    return tmp_path


def usage(data: Path, *arguments: str) -> str:
    command = ["usage", "--data", str(data), *arguments]
    return CliRunner().invoke(cli, command, env={"COLUMNS": "200", "NO_COLOR": "1"}).output


def test_usage_is_priced_and_compared_with_a_hosted_service(data: Path) -> None:
    shown = usage(data, "--config", str(data / "prices.toml"))
    (alice,) = [line for line in shown.splitlines() if line.strip().startswith("alice")]
    assert "1.50 EUR" in alice and "1.00 EUR" in alice
    assert "total" in shown and "(no key)" in shown
    (day,) = json.loads(usage(data, "--config", str(data / "prices.toml"), "--key", "alice", "--json"))
    assert (day["cost"], day["hosted_cost"], day["output_tokens"]) == (1.5, 1.0, 500_000)


def test_without_a_record_the_command_says_what_writes_one(tmp_path: Path) -> None:
    assert "rejoinder serve" in usage(tmp_path)
