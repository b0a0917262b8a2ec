"""Streams whose client hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from server.chat_completions.streaming import event_stream
from tests.real_time import HANG_S


async def test_a_client_that_hangs_up_before_the_first_event_ends_the_work() -> None:
    ended = False

    async def thinking() -> AsyncIterator[str]:
        nonlocal ended
        try:
            await asyncio.Event().wait()
            yield "never"
        finally:
            ended = True

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    with pytest.raises(ClientDisconnect):
        async with asyncio.timeout(HANG_S):
            await event_stream(Request({"type": "http"}, receive), thinking())
    assert ended
