"""The lines of a batch: one request each, and one answer. OpenAI's format, as JSON."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from typing import Any

from pydantic import Field, ValidationError

from server.api_errors import field_path
from server.batch_store import BLANK, BatchUsage
from server.budgets import JSON_BODY
from server.request_body import MAX_VALUES, text_has_too_many_values
from server.response_format import StrictModel

MAX_ERRORS = 100
"""Lines that a batch reports if they are wrong."""

_UNAVAILABLE = ("stream", "diffusing", "background")
"""What a request of a batch cannot ask for: nobody listens."""

_OFF = frozenset("none false 0 no off n f".split())
"""What the endpoints read as no, if it is given at all."""


class BatchLine(StrictModel):
    """One request."""

    custom_id: str = Field(min_length=1, max_length=512)
    method: str
    url: str
    body: dict[str, Any]


def read_line(text: bytes) -> BatchLine:
    """A line that was checked."""
    return BatchLine.model_validate_json(text)


def check_lines(lines: Iterable[tuple[int, bytes]], endpoint: str, seen: set[str]) -> tuple[int, list[dict[str, Any]]]:
    """How many requests there are, and what is wrong with them, as `errors` of a batch have it.

    Args:
        lines: with their numbers. Empty ones are left out.
        seen: the `custom_id` of earlier lines; those of these lines are added.
    """
    count, errors = 0, list[dict[str, Any]]()
    for number, text in lines:
        if text.strip(BLANK):
            count += 1
            if wrong := _error(text, endpoint, seen):
                code, message, param = wrong
                errors.append({"code": code, "message": message, "param": param, "line": number})
    return count, errors


def _error(text: bytes, endpoint: str, seen: set[str]) -> tuple[str, str, str | None] | None:
    """Code, sentence and field of what is wrong with a line."""
    if len(text) > JSON_BODY.bytes or text_has_too_many_values(text):
        return "invalid_value", f"a line has at most {JSON_BODY.bytes >> 20} MiB and {MAX_VALUES:,} values", None
    try:
        line = read_line(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = field_path(first["loc"])
        if first["type"] == "json_invalid":
            return "invalid_json_line", f"the line is not valid JSON ({first['ctx']['error']})", None
        code = "missing_required_parameter" if first["type"] == "missing" else "invalid_value"
        return code, f"{path}: {first['msg']}" if path else first["msg"], path or None
    if line.method != "POST":
        return "invalid_method", f"the method is {line.method!r} and must be 'POST'", "method"
    if line.url != endpoint:
        return "mismatched_endpoint", f"the url is {line.url!r}, and the endpoint of the batch {endpoint!r}", "url"
    for name in _UNAVAILABLE:
        if str(line.body.get(name)).lower() not in _OFF:
            return "invalid_value", f"a request of a batch cannot have {name!r}", f"body.{name}"
    if line.custom_id in seen:
        return "duplicate_custom_id", f"two lines have the custom_id {line.custom_id!r}", "custom_id"
    seen.add(line.custom_id)
    return None


def answer_line(custom_id: str, response: tuple[int, Any] | None, error: tuple[str, str] | None = None) -> bytes:
    """A line of a result.

    Args:
        response: status and body; None if the request was not made.
        error: code and sentence, if it was not.
    """
    answer = {
        "id": f"batch_req_{secrets.token_hex(12)}",
        "custom_id": custom_id,
        "response": None
        if response is None
        else {"status_code": response[0], "request_id": f"req_{secrets.token_hex(12)}", "body": response[1]},
        "error": None if error is None else {"code": error[0], "message": error[1]},
    }
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def usage_of(body: Any) -> BatchUsage:
    """The tokens of an answer, whichever endpoint it comes from."""
    usage = body.get("usage") if isinstance(body, dict) else None
    if not isinstance(usage, dict):
        return BatchUsage()
    read = int(usage.get("input_tokens") or usage.get("prompt_tokens") or 0)
    details = usage.get("input_tokens_details") or usage.get("prompt_tokens_details") or {}
    written = int(usage.get("output_tokens") or usage.get("completion_tokens") or 0)
    return BatchUsage(read, int(details.get("cached_tokens", 0)), written)
