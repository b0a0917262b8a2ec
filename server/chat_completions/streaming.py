"""Server-sent events, choices that are generated side by side, and clients that hang up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import aclosing
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse

from agent.background_tasks import batch, cancel
from server.api_errors import APIError
from server.server_sent_events import event, event_response

T = TypeVar("T")


async def event_stream(request: Request, events: AsyncIterator[str]) -> StreamingResponse:
    """A response of server-sent events. It waits for the first one, so that an error before it has a status of its own;
    a later error is an event. The body must have been read.

    Raises:
        APIError: there is no first event.
        ClientDisconnect: the client hung up before there was one.
    """
    first = await unless_disconnected(request, anext(events))

    async def body() -> AsyncIterator[str]:
        async with aclosing(events):  # type: ignore[type-var]
            yield first
            try:
                async for item in events:
                    yield item
            except APIError as error:
                yield event(error.body())

    return event_response(body())


async def merge(streams: Sequence[AsyncIterator[T]]) -> AsyncIterator[tuple[int, T]]:
    """The items of several streams as they come, each with the index of its stream. The first error ends all."""
    queue: asyncio.Queue[tuple[int, T] | BaseException | None] = asyncio.Queue()

    async def forward(index: int, stream: AsyncIterator[T]) -> None:
        try:
            async with aclosing(stream) as items:  # type: ignore[type-var]
                async for item in items:
                    queue.put_nowait((index, item))
            queue.put_nowait(None)
        except Exception as error:
            queue.put_nowait(error)

    async with batch(forward(index, stream) for index, stream in enumerate(streams)) as running:
        left = len(running)
        while left:
            entry = await queue.get()
            if isinstance(entry, BaseException):
                raise entry
            if entry is None:
                left -= 1
            else:
                yield entry


async def unless_disconnected(request: Request, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled when the client hangs up. The body must have been read.

    Raises:
        ClientDisconnect: it hung up.
    """
    task = asyncio.ensure_future(work)
    hang_up = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, hang_up}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect()
        return task.result()
    finally:
        await cancel((task, hang_up))


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
