"""What pydantic reports about a client event, in the protocol's terms."""

from __future__ import annotations

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
