"""Bodies of HTTP requests: how large they may be, and how long they may take."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from server.budgets import Budget


def limited(request: Request, budget: Budget) -> Request:
    """A request of whose body no more is read, and for no longer, than a budget allows. Whatever reads further gets an
    HTTPException. If the request says that its body is longer, it is raised here."""
    too_large = _refused(413, f"the body is larger than {budget.bytes >> 10} KiB")
    if int(request.headers.get("content-length", 0)) > budget.bytes:
        raise too_large
    left, deadline = budget.bytes, asyncio.get_running_loop().time() + budget.seconds

    async def receive() -> Message:
        nonlocal left
        try:
            async with asyncio.timeout_at(deadline):
                message = await request.receive()
        except TimeoutError:
            raise _refused(408, f"the body did not arrive within {budget.seconds:g} s") from None
        left -= len(message.get("body", b""))
        if left < 0:
            raise too_large
        return message

    return Request(request.scope, receive)


def _refused(status: int, sentence: str) -> HTTPException:
    """The connection ends with the response: otherwise the rest of the body would be read, and thrown away."""
    return HTTPException(status, sentence, {"connection": "close"})
