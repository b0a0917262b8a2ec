"""Tests of what only real time can show, on a machine that may be busy for a moment.

Most tests need none of this: they run on a virtual clock (`tests/fakes.py`), or assert an order or a count.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
import warnings
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, TypeVar

import pytest

HANG_S = 60.0
"""Timeout of what should take a moment. It only ends a test that would otherwise hang, so it may be far too long."""

_PAUSE_S = 1.0
"""Before another attempt, for whatever kept the machine busy to end."""

Test = TypeVar("Test", bound=Callable[..., Any])


def retried_under_load(attempts: int = 3) -> Callable[[Test], Test]:
    """Decorate a test of durations in real time: one of several attempts must pass.

    A busy machine fails an attempt now and then; a defect fails all of them. Each failed attempt is reported as a
    warning, so that a test that needs its attempts can be seen. Use it only where neither a virtual clock nor an order
    of events shows the same. `.ci/run` runs these tests two at a time, and repeats what fails alone.

    Args:
        attempts: maximum number of attempts. All use the same fixtures.
    """

    def decorate(test: Test) -> Test:
        if inspect.iscoroutinefunction(test):

            @wraps(test)
            async def attempt(*args: Any, **kwargs: Any) -> None:
                for number in range(1, attempts):
                    try:
                        return await test(*args, **kwargs)
                    except (AssertionError, TimeoutError) as error:
                        _report(test, number, attempts, error)
                    await asyncio.sleep(_PAUSE_S)
                return await test(*args, **kwargs)

        else:

            @wraps(test)
            def attempt(*args: Any, **kwargs: Any) -> None:
                for number in range(1, attempts):
                    try:
                        return test(*args, **kwargs)
                    except (AssertionError, TimeoutError) as error:
                        _report(test, number, attempts, error)
                    time.sleep(_PAUSE_S)
                return test(*args, **kwargs)

        return pytest.mark.real_time(attempt)  # type: ignore[no-any-return]

    return decorate


def speed_of_the_machine(test: str) -> str:
    """What to do after the failure of a test that depends on how fast the machine is, with its load."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        "This test depends on how fast the machine is. In the last minute the machine's load was "
        f"{os.getloadavg()[0]:.1f} on {cores} cores. If it was higher than that, end other programs and run the test "
        f"alone: pytest '{test}'. If it was not, and there are two cores, the failure is a defect."
    )


async def wait_until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait until a condition holds, which may be asynchronous. Raises TimeoutError after `HANG_S`."""
    async with asyncio.timeout(HANG_S):
        while True:
            holds = condition()
            if await holds if isinstance(holds, Awaitable) else holds:
                return
            await asyncio.sleep(0.01)


def _report(test: Callable[..., Any], number: int, attempts: int, error: BaseException) -> None:
    warnings.warn(f"{test.__name__}: attempt {number} of {attempts} failed: {error}", stacklevel=3)
