"""Bodies of HTTP requests: how large they may be, how long they may take, and how many values JSON may have."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from server.access.usage import NO_KEY, current_key
from server.budgets import JSON_BODY, Budget

MAX_VALUES = 20_000
"""Values of a JSON document: more than any request needs. Validation takes up to 30 µs for each one that is wrong,
while nothing else happens on the event loop."""

_MAX_DISCARDED, _DISCARD_S = 8 << 20, 1.0
"""How much of a body that is too large is read and thrown away, in bytes, and for how long."""

_arriving = Counter[Budget]()
"""Bytes of the bodies that are being read, by their budget."""

_arriving_from = Counter[tuple[Budget, str]]()
"""The same of one sender, who may have half of the total: a few addresses with bodies that never end would otherwise
keep everybody out."""


@contextmanager
def limited(request: Request, budget: Budget) -> Iterator[Request]:
    """A request of whose body no more is read, and for no longer, than a budget allows. Whatever reads further gets an
    HTTPException. If the request says that its body is longer, it is raised here. Until the end of the block the body
    counts towards the total of the budget."""
    sender = budget, _sender(request)
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
        total = budget.total or sys.maxsize
        if _arriving[budget] + new > total or _arriving_from[sender] + new > total // 2:
            raise _refused(503, "too many requests are being read: try again soon")
        size += new
        _arriving[budget] += new
        _arriving_from[sender] += new
        return message

    try:
        yield Request(request.scope, receive)
    finally:
        _arriving[budget] -= size
        _arriving_from[sender] -= size
        if not _arriving_from[sender]:
            del _arriving_from[sender]


def _sender(request: Request) -> str:
    """The name of the request's key; its address if it has none."""
    if (key := current_key()) != NO_KEY:
        return f"key {key}"
    return request.client.host if request.client is not None else ""


async def json_body(request: Request) -> bytes:
    """The body of a request in JSON, which is still to be validated. Raises HTTPException."""
    with limited(request, JSON_BODY) as counted:
        body = await counted.body()
    if text_has_too_many_values(body):
        raise HTTPException(413, f"the body has more than {MAX_VALUES:,} values")
    return body


def text_has_too_many_values(text: bytes) -> bool:
    """Whether JSON has more values than are validated; whatever validates it says if it is none. A comma or a bracket
    stands before each value but the first, so a text with few of them is not parsed for this."""
    if sum(map(text.count, (b",", b"[", b"{"))) < MAX_VALUES:
        return False
    try:
        return has_too_many_values(from_json(text))
    except ValueError:
        return False


def has_too_many_values(document: Any) -> bool:
    """Whether a JSON document has more values than are validated. Takes a millisecond."""
    count, unread = 1, [document]
    while unread and count <= MAX_VALUES:
        value = unread.pop()
        if isinstance(value, dict | list):
            count += len(value)
            if count <= MAX_VALUES:
                unread += value.values() if isinstance(value, dict) else value
    return count > MAX_VALUES


async def discard_rest(request: Request, error: HTTPException) -> None:
    """Read for a moment what is left of a body that was refused as too large. A connection that is closed with unread
    data is reset, and the client may lose the response with it."""
    if error.status_code != 413 or not error.headers:
        return
    discarded = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_S):
            while discarded < _MAX_DISCARDED:
                message = await request.receive()
                discarded += len(message.get("body", b""))
                if not message.get("more_body"):
                    return


def _refused(status: int, sentence: str) -> HTTPException:
    """The connection ends with the response: otherwise the rest of the body would be read, and thrown away."""
    return HTTPException(status, sentence, {"connection": "close"})
