"""The connection to an OpenAI-compatible server. Redirects are not followed: they would take the key elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx

from agent.remote.chat_stream import ChatStream, RemoteFailed
from agent.remote.settings import RemoteSettings

_MAX_LINE_BYTES = 1 << 20
"""Length of one event."""

_STATUSES = {
    401: "refuses the key",
    403: "refuses the key",
    404: "has no such model or address",
    408: "took too long",
    429: "is too busy, or the quota of the key is used up",
}
_OWN_FAULT = frozenset([400, 409, 413, 422])
"""What is wrong is this request, such as its length: others may succeed."""


# The openai SDK (3.54) was tried here. It reads events and the bodies of errors whatever their size, fails at a byte
# that is not UTF-8, and sends every server a description of this machine and headers from OPENAI_* variables. With all
# of that held back, this file and chat_stream.py had 40 lines more.
class ChatEndpoint:
    """A client of one server.

    Args:
        transport: for tests.
    """

    def __init__(self, settings: RemoteSettings, transport: httpx.AsyncBaseTransport | None = None) -> None:
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
        if settings.api_key:
            headers["Authorization"] = f"Bearer {settings.api_key}"
        self._url = settings.endpoint
        # The caller limits the time until the first token and between two; these limits only free the connection.
        limits = httpx.Timeout(settings.total_s, connect=settings.first_token_s)
        self._http = httpx.AsyncClient(headers=headers, timeout=limits, transport=transport)

    async def stream(self, body: Mapping[str, Any], stream: ChatStream) -> AsyncIterator[str]:
        """Send a request and read its response into `stream`. Yields the new text of each event, which is often none.
        Closing the iterator closes the connection. Raises RemoteFailed."""
        try:
            async with self._http.stream("POST", self._url, json=body) as response:
                if response.status_code != 200:
                    raise _refusal(response)
                async for line in _lines(response):
                    yield stream.feed(line)
                    if stream.done:
                        break
        except httpx.HTTPError as error:
            if stream.finish_reason is None:
                raise _connection_failure(error) from None
        if stream.finish_reason is None:
            raise RemoteFailed("ended the answer before it was complete")

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    pending = b""
    async for part in response.aiter_raw():
        *lines, pending = (pending + part).split(b"\n")
        for line in lines:
            yield line.rstrip(b"\r").decode("utf-8", "replace")
        if len(pending) > _MAX_LINE_BYTES:
            raise RemoteFailed("sent an event of more than 1 MiB")
    if pending:
        yield pending.decode("utf-8", "replace")


def _refusal(response: httpx.Response) -> RemoteFailed:
    """What a status means. Bodies are not read: they may repeat the conversation, and this is logged."""
    status = response.status_code
    what = _STATUSES.get(status) or ("does not accept this request" if status in _OWN_FAULT else "failed")
    try:
        retry_after_s = max(0.0, float(response.headers.get("retry-after", 0)))
    except ValueError:  # a date
        retry_after_s = 0.0
    return RemoteFailed(f"{what} (HTTP {status})", retry_after_s, server_failed=status not in _OWN_FAULT)


def _connection_failure(error: httpx.HTTPError) -> RemoteFailed:
    cannot_connect = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
    what = "cannot be reached" if cannot_connect else "broke the connection"
    return RemoteFailed(f"{what} ({type(error).__name__})")
