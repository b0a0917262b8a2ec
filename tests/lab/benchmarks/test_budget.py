"""A default server stays within the budget of docs/benchmarks/budget.md."""

from __future__ import annotations

import re
import sys
from dataclasses import astuple
from pathlib import Path

import pytest

from lab.benchmarks.budget import Budget, measure

PAGE = (Path(__file__).parents[3] / "docs" / "benchmarks" / "budget.md").read_text()

LIMITS = {
    name: float(limit.replace(",", ""))
    for name, limit in re.findall(r"^\| (.+?) \| [\d.,]+ \| ([\d.,]+) \|", PAGE, re.M)
}
ABSENT = re.findall(r"`([\w.]+)`", PAGE.partition("## Not imported")[2])


@pytest.fixture(scope="module")
def budget() -> Budget:
    if sys.platform != "linux":
        pytest.skip("it is measured on Linux")
    return measure("qwen2.5-coder-0.5b")


@pytest.mark.real_time
def test_a_default_server_stays_within_its_budget(budget: Budget) -> None:
    *costs, modules = astuple(budget)
    measured = dict(zip(LIMITS, (*costs, len(modules)), strict=True))
    over = {name: value for name, value in measured.items() if value > LIMITS[name]}
    assert not over, f"over the limits of docs/benchmarks/budget.md: {over}; all: {measured}"


@pytest.mark.real_time
def test_a_feature_that_is_off_is_not_imported(budget: Budget) -> None:
    assert len(ABSENT) > 20
    imported = [one for one in ABSENT if any(name == one or name.startswith(f"{one}.") for name in budget.modules)]
    assert not imported
