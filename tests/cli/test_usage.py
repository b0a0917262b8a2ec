"""`rejoinder usage`."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app as cli
from lab.simulator.costs import loads_of, monthly_costs, usage_of
from lab.simulator.fleet import KINDS
from server.access.prices import PriceList
from server.access.usage import Usage, UsageLog
from server.observability.turn_log import TurnLog, TurnRecord

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


def test_a_key_called_total_is_shown_beside_the_sum(data: Path) -> None:
    log = UsageLog(data / "usage.sqlite")
    log.add("total", Usage(turns=4))
    log.close()
    totals = [line.split() for line in usage(data).splitlines() if line.strip().startswith("total")]
    assert [line[5] for line in totals] == ["4", "7"]


def test_without_a_record_the_command_says_what_writes_one(tmp_path: Path) -> None:
    assert "rejoinder serve" in usage(tmp_path)


HOUR_S, DAY_S = 3600, 86_400


def two_days(a_morning: int) -> list[TurnRecord]:
    """Turns of two days, each with so many between 10:00 and 11:00 and four in the afternoon."""
    midnight = (time.time() // DAY_S - 3) * DAY_S
    details = {"prompt_tokens": 1000, "cached_tokens": 900, "tokens": 50}
    at = [10 * HOUR_S + HOUR_S * n / a_morning for n in range(a_morning)]
    at += [(14 + n) * HOUR_S for n in range(4)]
    return [
        TurnRecord(f"{day}-{moment}", midnight + day * DAY_S + moment, 500.0, {}, details)
        for day in range(2)
        for moment in at
    ]


@pytest.fixture
def turn_log(tmp_path: Path) -> Path:
    path = tmp_path / "turns.sqlite"
    log = TurnLog(path)
    for turn in two_days(16):
        log.record(turn)
    log.close()
    return path


def plan(turn_log: Path, prices: str, *arguments: str) -> str:
    config = turn_log.with_name("prices.toml")
    config.write_text(prices)
    command = ["usage", "plan", "--turn-log", str(turn_log), "--config", str(config), *arguments]
    return CliRunner().invoke(cli, command, env={"COLUMNS": "200", "NO_COLOR": "1"}).output


def test_a_plan_compares_the_hosted_price_with_own_machines(turn_log: Path) -> None:
    prices = '[prices]\ncurrency = "EUR"\n[prices.hosted]\naudio_in_minute = 0.6\naudio_out_minute = 2.4\n'
    shown = plan(turn_log, prices, "--price", "0.10", "--conversations", "2", "--burst", "4")
    logged, steady, burst = (
        next(line.split() for line in shown.splitlines() if line.strip().startswith(name))
        for name in ("as logged", "steady", "burst")
    )
    turns = 40 / ((DAY_S + 7 * HOUR_S) / DAY_S)  # from the first turn to the last
    each = 0.6 * 3 / 60 + 2.4 * 5 / 60
    assert float(logged[logged.index("EUR") - 1]) == pytest.approx(30 * turns * each, rel=0.001)
    assert steady[steady.index("EUR") - 1] == logged[logged.index("EUR") - 1]
    assert float(burst[burst.index("EUR") - 1]) > 3 * float(steady[steady.index("EUR") - 1])
    # 0.1 EUR an hour for 24 hours cost as much as these turns.
    assert f"as much as {2.4 / each:,.0f} turns a day" in shown
    assert (
        "Simulated, not measured" in shown and "2 conversations, as given" in shown and "10 s of conversation" in shown
    )


def test_machines_that_follow_the_load_cost_less_where_it_comes_in_a_burst() -> None:
    turns = two_days(240)
    kind = replace(KINDS["cpu"], conversations=2)
    loads = loads_of(turns, 2.0, 20.0)
    assert [load.turns for load in loads] == [244, 244, 244 + 19 * 240]
    logged, steady, burst = monthly_costs(loads, usage_of(turns), PriceList(million_output_tokens=1.0), kind)
    assert logged.hosted == steady.hosted == pytest.approx(30 * 244 * 50 / 1e6)
    assert steady.fixed_replicas <= logged.fixed_replicas < burst.fixed_replicas
    assert burst.scaled < 0.8 * burst.fixed
    assert 0 <= burst.refused < 0.05


def test_a_plan_needs_turns_and_a_hosted_price(turn_log: Path) -> None:
    assert "add [prices.hosted]" in plan(turn_log, "[prices]\nminute = 1\n")
    assert "no turns of these days" in plan(turn_log, "[prices.hosted]\nminute = 1\n", "--days", "1")
    assert "choose l4, h100, cpu" in plan(turn_log, "[prices.hosted]\nminute = 1\n", "--replica", "tpu")
