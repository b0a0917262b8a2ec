"""Client events that are not valid, and what pydantic reports about them, in the protocol's terms."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import ValidationError

from server.realtime.session_config import ENCODINGS

_TAGS = frozenset(
    [
        "server_vad", "semantic_vad", "input_text", "input_audio", "input_image", "output_text", "output_audio",
        "message", "function_call", "function_call_output", "item_reference", *ENCODINGS,
        "mcp_approval_response", "VoiceID", "function", "mcp", "mode", "int", "str", "constrained-int",
        "constrained-str", "literal['inf']",
    ]
)  # fmt: skip
"""Pydantic puts the tags of unions into the path of a field, but they are not fields of the event."""


def first_error(error: ValidationError) -> tuple[str, str, str | None]:
    """The first error: its message, its code, and the path of the field."""
    details = error.errors(include_url=False)[0]
    path = [str(part) for part in details["loc"] if str(part) not in _TAGS and not str(part).startswith("function-")]
    if path and "." in path[0]:
        path = path[1:]  # the tag of the event's own type
    param = ".".join(path) or None
    kind = details["type"]
    if kind == "union_tag_invalid" and param is None:
        return f"unknown event type: {details['msg']}", "unknown_event", "type"
    if kind == "union_tag_not_found" and param is None:
        return "an event must have a type", "missing_required_parameter", "type"
    code = {"extra_forbidden": "unknown_parameter", "missing": "missing_required_parameter"}.get(kind, "invalid_value")
    value = "" if kind in ("missing", "extra_forbidden") else f" (received: {str(details['input'])[:80]!r})"
    return f"{param or 'the event'}: {details['msg']}{value}", code, param


class InvalidEvent(Exception):
    """A client event that is invalid or cannot be carried out."""

    def __init__(self, message: str, *, code: str = "invalid_value", param: str | None = None) -> None:
        super().__init__(message)
        self.code, self.param = code, param

    @classmethod
    def from_validation(cls, error: ValidationError) -> InvalidEvent:
        """The first error that pydantic reports."""
        message, code, param = first_error(error)
        return cls(message, code=code, param=param)


def parse_json(text: str) -> dict[str, Any]:
    """The event in a text frame. Raises InvalidEvent."""
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidEvent(
            f"this event is not JSON ({error}): send one JSON object per frame", code="invalid_json"
        ) from None
    if not isinstance(payload, dict):
        raise InvalidEvent("an event must be a JSON object with a type", code="invalid_json")
    return payload


def schema_path(error: ValueError) -> str:
    """Where in a schema the language model found what it cannot enforce; empty if it does not say."""
    return re.sub(r"\[(\d+)\]", r".\1", getattr(error, "path", ""))
