"""What many requests begin with is read once, by whoever needs it first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.reasoning.cost import Cost
from agent.reasoning.shared_examples import SharedExamples
from chat.progress import Progress
from chat.types import Ask, Message
from tests.fakes import run_on_virtual_clock

EXAMPLES = (Message("system", "Say what kind."),)


class SlowReader:
    """Counts what is read. Fails for the first readers."""

    def __init__(self, failures: int = 0) -> None:
        self.read, self.failures, self.forks = 0, failures, 0

    def fork(self) -> SlowReader:
        self.forks += 1
        return self

    async def reply(self, ask: Ask) -> AsyncIterator[Progress]:
        self.read += 1
        await asyncio.sleep(3.0)
        if self.failures:
            self.failures -= 1
            raise ValueError("too long")
        yield Progress("x", tokens=1, step=1, finished="length", prompt_tokens=70)


def test_requests_at_the_same_time_read_examples_once_and_the_first_pays() -> None:
    model = SlowReader()

    async def work() -> list[Cost]:
        shared, costs = SharedExamples(model), [Cost(), Cost(), Cost()]  # type: ignore[arg-type]
        await asyncio.gather(*(shared.reader(EXAMPLES, cost) for cost in costs))
        await shared.reader((Message("system", "Say something else."),), Cost())
        return costs

    costs = run_on_virtual_clock(work)
    assert [cost.prompt_tokens for cost in costs] == [70, 0, 0]
    assert model.read == 2 and model.forks == 2 + 4


def test_examples_that_could_not_be_read_are_read_by_the_next_request() -> None:
    model = SlowReader(failures=1)

    async def work() -> None:
        shared = SharedExamples(model)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="too long"):
            await shared.reader(EXAMPLES, Cost())
        await shared.reader(EXAMPLES, Cost())

    run_on_virtual_clock(work)
    assert model.read == 2
