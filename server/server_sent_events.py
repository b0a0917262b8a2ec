"""Server-sent events: how they are written, and the response that sends them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import StreamingResponse

DONE = "data: [DONE]\n\n"
"""Ends a stream of events."""


def event(data: Any, name: str | None = None) -> str:
    """One event with JSON data."""
    prefix = "" if name is None else f"event: {name}\n"
    return f"{prefix}data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


def event_response(events: AsyncIterator[str]) -> StreamingResponse:
    """A response that sends events as they come."""
    # Proxies such as nginx would collect events before they pass them on.
    return StreamingResponse(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})
