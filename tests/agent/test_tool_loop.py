"""The limits of a written response's calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from agent.tool_loop import GIVEN_UP, MAX_REPEATS, REMOVED, REPEATED, ToolLoop, without_oldest_output
from agent.tools.protocol import ToolOutput
from chat.types import Message, ToolCall
from tests.fakes import run_on_virtual_clock


def called(name: str, number: int = 0) -> ToolCall:
    return ToolCall("call", name, f'{{"n": {number}}}')


def returning(text: str = "done", seconds: float = 0.0, failed: bool = False) -> Callable[[], Awaitable[ToolOutput]]:
    async def make() -> ToolOutput:
        await asyncio.sleep(seconds)
        if failed:
            raise ValueError(text)
        return ToolOutput(text)

    return make


async def test_fifty_calls_are_made_and_no_more() -> None:
    loop = ToolLoop()
    outputs = [await loop.call(called("read", n), returning(), 60) for n in range(52)]
    assert [output.text for output in outputs[:50]] == ["done"] * 50
    assert all("no more calls are allowed" in output.text for output in outputs[50:])
    assert (loop.calls, loop.stopped, loop.remaining_calls) == (50, "max_tool_calls", 0)


async def test_the_same_call_is_made_again_only_after_something_new() -> None:
    loop = ToolLoop()
    for call in (called("read"), called("write", 1), called("read")):
        assert (await loop.call(call, returning(), 60)).text == "done"
    assert (await loop.call(called("read"), returning(), 60)).text == REPEATED
    assert (await loop.call(called("write", 2), returning(), 60)).text == "done"
    assert loop.stopped is None


async def test_calls_that_go_round_in_a_circle_are_stopped() -> None:
    loop = ToolLoop()
    texts = [(await loop.call(called("page", n % 2), returning(), 60)).text for n in range(8)]
    assert texts[:3] == ["done", "done", "done"]  # the first one has not been made since the second was news
    assert texts[3 : 3 + MAX_REPEATS] == [REPEATED] * MAX_REPEATS
    assert loop.stopped == "repetition" and "again and again" in texts[-1]


async def test_a_call_that_fails_may_be_tried_again_but_not_forever() -> None:
    loop = ToolLoop()
    texts = [(await loop.call(called("read"), returning("no luck", failed=True), 60)).text for _ in range(8)]
    assert texts[:MAX_REPEATS] == ["The call failed: no luck"] * MAX_REPEATS
    assert texts[MAX_REPEATS] == GIVEN_UP.format(count=MAX_REPEATS)
    assert loop.stopped == "repetition"


def test_a_call_that_takes_too_long_is_stopped() -> None:
    async def calls() -> tuple[ToolOutput, ToolOutput, ToolLoop]:
        loop = ToolLoop(max_seconds=100, clock=asyncio.get_running_loop().time)
        slow = await loop.call(called("slow"), returning(seconds=1000), 60)
        return slow, await loop.call(called("slower"), returning(seconds=1000), 60), loop

    first, second, loop = run_on_virtual_clock(calls)
    assert first.failed and "longer than 60 s" in first.text
    assert second.failed and "longer than 40 s" in second.text
    assert loop.stopped == "time_limit"


async def test_a_stop_ends_the_call_that_runs() -> None:
    loop = ToolLoop()
    cancelled = asyncio.Event()

    async def hang() -> ToolOutput:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    running = asyncio.create_task(loop.call(called("hang"), hang, 60))
    await asyncio.sleep(0)
    loop.cancel()
    assert (await running).failed and cancelled.is_set()
    assert loop.stopped == "cancelled"


async def test_cancelling_the_task_cancels_the_call() -> None:
    loop, started, ended = ToolLoop(), asyncio.Event(), asyncio.Event()

    async def hang() -> ToolOutput:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    running = asyncio.create_task(loop.call(called("hang"), hang, 60))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()


def test_old_outputs_make_room_for_new_ones() -> None:
    earlier = [Message("user", "hello"), Message("tool", "kept", tool_call_id="0")]
    loop = [Message("tool", str(n), tool_call_id=str(n)) for n in range(3)]
    messages: list[Message] | None = [*earlier, *loop]
    texts = []
    while messages is not None:
        texts.append([message.content for message in messages])
        messages = without_oldest_output(messages, len(earlier))
    assert texts[1:] == [["hello", "kept", REMOVED, "1", "2"], ["hello", "kept", REMOVED, REMOVED, "2"]]
