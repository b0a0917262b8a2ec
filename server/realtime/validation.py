"""Client events that are not valid, and what pydantic reports about them, in the protocol's terms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from server.realtime.session_config import ENCODINGS
from server.request_body import MAX_VALUES, has_too_many_values

_TAGS = frozenset(
    [
        "server_vad", "semantic_vad", "input_text", "input_audio", "input_image", "output_text", "output_audio",
        "message", "function_call", "function_call_output", "item_reference", *ENCODINGS,
        "mcp_approval_response", "VoiceID", "function", "mcp", "mode", "int", "str", "constrained-int",
        "constrained-str", "literal['inf']",
    ]
)  # fmt: skip
"""Pydantic puts the tags of unions into the path of a field, but they are not fields of the event."""


class InvalidEvent(Exception):
    """A client event that is invalid or cannot be carried out. `param` is the path of the offending field."""

    def __init__(self, message: str, *, code: str = "invalid_value", param: str | None = None) -> None:
        super().__init__(message)
        self.code, self.param = code, param

    @classmethod
    def from_validation(cls, error: ValidationError) -> InvalidEvent:
        """The first error that pydantic reports."""
        details = error.errors(include_url=False)[0]
        path = [part for part in map(str, details["loc"]) if part not in _TAGS and not part.startswith("function-")]
        if path and "." in path[0]:
            path = path[1:]  # the tag of the event's own type
        param = ".".join(path) or None
        kind = details["type"]
        if kind == "union_tag_invalid" and param is None:
            return cls(f"unknown event type: {details['msg']}", code="unknown_event", param="type")
        if kind == "union_tag_not_found" and param is None:
            return cls("an event must have a type", code="missing_required_parameter", param="type")
        codes = {"extra_forbidden": "unknown_parameter", "missing": "missing_required_parameter"}
        value = "" if kind in codes else f" (received: {str(details['input'])[:80]!r})"
        message = f"{param or 'the event'}: {details['msg']}{value}"
        return cls(message, code=codes.get(kind, "invalid_value"), param=param)


@contextmanager
def errors_in(field: str) -> Iterator[None]:
    """Completes the path of an InvalidEvent that is raised about a part of the event, in this field."""
    try:
        yield
    except InvalidEvent as error:
        raise InvalidEvent(str(error), code=error.code, param=f"{field}.{error.param or ''}".rstrip(".")) from None


def parse_json(text: str) -> dict[str, Any]:
    """The event in a text frame. Raises InvalidEvent, also for half of a surrogate pair, which no UTF-8 can hold: the
    text would be accepted here, and fail wherever it is written."""
    try:
        payload = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidEvent(
            f"this event is not JSON ({error}): send one JSON object per frame", code="invalid_json"
        ) from None
    if not isinstance(payload, dict):
        raise InvalidEvent("an event must be a JSON object with a type", code="invalid_json")
    if has_too_many_values(payload):
        raise InvalidEvent(f"this event has more than {MAX_VALUES:,} values", code="event_too_large")
    return payload


def schema_path(error: ValueError) -> str:
    """Where in a schema the language model found what it cannot enforce; empty if it does not say."""
    return re.sub(r"\[(\d+)\]", r".\1", getattr(error, "path", ""))
