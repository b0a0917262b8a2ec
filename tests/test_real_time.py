"""One of several attempts must pass, and a defect still fails. Which tests run, and what a failed one says."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest, real_time
from tests.real_time import retried_under_load, speed_of_the_machine, wait_until


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_time, "_PAUSE_S", 0.0)


@pytest.mark.parametrize("failures", [0, 2])
async def test_a_test_passes_if_one_of_three_attempts_does(failures: int) -> None:
    calls: list[str] = []

    @retried_under_load(attempts=3)
    def synchronous(name: str) -> None:
        calls.append(name)
        assert len(calls) > failures, "too late"

    @retried_under_load(attempts=3)
    async def asynchronous(name: str) -> None:
        synchronous.__wrapped__(name)  # type: ignore[attr-defined]

    for test in (synchronous, asynchronous):
        calls.clear()
        with warnings.catch_warnings(record=True) as reported:
            done = test("argument")
            if done is not None:
                await done
        starts = [f"{test.__name__}: attempt {number} of 3 failed: too late" for number in range(1, failures + 1)]
        assert all(str(w.message).startswith(start) for w, start in zip(reported, starts, strict=True))
        assert calls == ["argument"] * (failures + 1)


async def test_a_defect_fails_every_attempt() -> None:
    calls: list[int] = []

    @retried_under_load(attempts=3)
    async def broken() -> None:
        calls.append(1)
        raise AssertionError("broken")

    with pytest.warns(UserWarning), pytest.raises(AssertionError, match="broken"):
        await broken()
    assert len(calls) == 3


async def test_other_errors_are_not_retried() -> None:
    calls: list[int] = []

    @retried_under_load()
    async def broken() -> None:
        calls.append(1)
        raise KeyError("broken")

    with pytest.raises(KeyError):
        await broken()
    assert len(calls) == 1


async def test_waiting_ends_when_the_condition_holds_or_after_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    results = [False, False, True]
    await wait_until(lambda: results.pop(0))
    assert results == []

    async def never() -> bool:
        return False

    monkeypatch.setattr(real_time, "HANG_S", 0.05)
    with pytest.raises(TimeoutError):
        await wait_until(never)


@pytest.mark.parametrize(
    ("source", "marks", "run"),
    [("TESTPATHS", "", conftest.QUICK), ("TESTPATHS", "real_time", "real_time"), ("ARGS", "", "")],
)
def test_without_a_path_or_a_mark_only_quick_tests_run(source: str, marks: str, run: str) -> None:
    config: Any = SimpleNamespace(args_source=pytest.Config.ArgsSource[source], option=SimpleNamespace(markexpr=marks))
    conftest.pytest_configure(config)
    assert config.option.markexpr == run
    quick = run == conftest.QUICK
    assert (conftest.pytest_report_header(config) is not None) == quick
    assert (conftest.pytest_ignore_collect(Path("tests/e2e"), config) is True) == quick
    assert conftest.pytest_ignore_collect(Path("tests/voice"), config) is None


def test_a_failure_in_real_time_says_how_busy_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (7.25, 3.0, 1.0))
    assert "load was 7.2 on " in speed_of_the_machine("tests/test_a.py::test_b")
    assert "pytest 'tests/test_a.py::test_b'" in speed_of_the_machine("tests/test_a.py::test_b")
