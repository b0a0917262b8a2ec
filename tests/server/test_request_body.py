"""Bodies that arrive at the same time: no sender and no key keeps the others out."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from server.access.admission import Admission, Refused
from server.access.usage import UsageLog, UsageMeter, current_meter
from server.budgets import WEBHOOK
from server.chat_completions.requests import RequestLimit
from server.request_body import limited

BLOCK = bytes(WEBHOOK.bytes)


def request_from(address: str) -> Request:
    async def receive() -> Message:
        return {"type": "http.request", "body": BLOCK, "more_body": False}

    return Request({"type": "http", "headers": [], "client": (address, 1)}, receive)


async def test_an_address_whose_bodies_do_not_end_leaves_half_of_the_room_to_others() -> None:
    assert WEBHOOK.total is not None
    with ExitStack() as reading:
        for _ in range(WEBHOOK.total // 2 // WEBHOOK.bytes):
            assert await reading.enter_context(limited(request_from("192.0.2.1"), WEBHOOK)).body() == BLOCK
        with pytest.raises(HTTPException, match="too many"), limited(request_from("192.0.2.1"), WEBHOOK) as more:
            await more.body()
        with limited(request_from("192.0.2.2"), WEBHOOK) as other:
            assert await other.body() == BLOCK
    with limited(request_from("192.0.2.1"), WEBHOOK) as again:
        assert await again.body() == BLOCK


def test_one_key_leaves_a_quarter_of_the_places_to_others() -> None:
    limit = RequestLimit(Admission(), 8, "too_many_recordings", "recordings are being transcribed")
    with ExitStack() as stack:
        token = current_meter.set(UsageMeter(UsageLog(None), "alice"))
        try:
            for _ in range(6):
                stack.enter_context(limit.slot())
            with pytest.raises(Refused), limit.slot():
                pass
        finally:
            current_meter.reset(token)
        for _ in range(2):
            stack.enter_context(limit.slot())
        with pytest.raises(Refused), limit.slot():
            pass
