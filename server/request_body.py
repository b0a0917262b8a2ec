"""Bodies of HTTP requests: how large they may be, how long they may take, and how many values JSON may have."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from server.budgets import Budget

MAX_JSON_VALUES = 20_000
"""Values in a JSON body, an event, or a line of a batch. Reading them, and listing what is wrong with each, takes up to
0.2 s, in which no conversation goes on. 4 MiB have room for two million; a request of 32,000 tokens has a few
thousand."""

TOO_MANY_VALUES = f"the JSON has more than {MAX_JSON_VALUES:,} values"

_arriving = Counter[Budget]()
"""Bytes of the bodies that are being read, by their budget."""


@contextmanager
def limited(request: Request, budget: Budget) -> Iterator[Request]:
    """A request of whose body no more is read, and for no longer, than a budget allows. Whatever reads further gets an
    HTTPException. If the request says that its body is longer, it is raised here. Until the end of the block the body
    counts towards the total of the budget."""
    too_large = _refused(413, f"the body is larger than {budget.bytes >> 10} KiB")
    if int(request.headers.get("content-length", 0)) > budget.bytes:
        raise too_large
    size, deadline = 0, asyncio.get_running_loop().time() + budget.seconds

    async def receive() -> Message:
        nonlocal size
        try:
            async with asyncio.timeout_at(deadline):
                message = await request.receive()
        except TimeoutError:
            raise _refused(408, f"the body did not arrive within {budget.seconds:g} s") from None
        new = len(message.get("body", b""))
        if size + new > budget.bytes:
            raise too_large
        if budget.total is not None and _arriving[budget] + new > budget.total:
            raise _refused(503, "too many requests are being read: try again soon")
        size += new
        _arriving[budget] += new
        return message

    try:
        yield Request(request.scope, receive)
    finally:
        _arriving[budget] -= size


def has_too_many_values(text: bytes) -> bool:
    """Whether JSON has more than `MAX_JSON_VALUES` values, by the signs that precede one outside of texts. Nothing is
    parsed; of text that is no JSON, the result means nothing."""
    if _count_values(text) <= MAX_JSON_VALUES:
        return False
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > 4 * MAX_JSON_VALUES:  # two for each text, which may be a key or a value
        return True
    return sum(map(_count_values, plain.split(b'"')[::2])) > MAX_JSON_VALUES


def _count_values(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _refused(status: int, sentence: str) -> HTTPException:
    """The connection ends with the response: otherwise the rest of the body would be read, and thrown away."""
    return HTTPException(status, sentence, {"connection": "close"})
