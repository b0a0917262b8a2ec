"""JSON of many small values, which takes seconds to validate, is refused before anything reads it."""

from __future__ import annotations

import asyncio
import json

import pytest
from starlette.requests import Request

from server.api_errors import APIError, read_json
from server.batches.request_lines import check_lines
from server.budgets import JSON_BODY
from server.chat_completions.schema import ChatCompletionRequest
from server.realtime.validation import InvalidEvent, parse_json
from server.request_body import MAX_JSON_VALUES, TOO_MANY_VALUES, has_too_many_values

MANY = 2 * MAX_JSON_VALUES


@pytest.mark.parametrize(
    "value",
    [
        [1] * MANY,
        [[]] * MANY,
        {str(n): 1 for n in range(MANY)},
        [[[[[1]]]]] * (MANY // 5),
        ['a, "b" [{'] * MANY,
        ["\\"] * 5 * MANY,
    ],
)
def test_many_values_are_counted(value: object) -> None:
    assert has_too_many_values(json.dumps(value).encode())


@pytest.mark.parametrize("text", ["," * MANY, 'a "quoted" text, [and] \\" more\\' * MANY, ""])
def test_a_long_text_is_one_value(text: str) -> None:
    assert not has_too_many_values(json.dumps({"messages": [{"role": "user", "content": text}]}).encode())


def test_a_body_with_too_many_values_is_refused() -> None:
    body = json.dumps({"messages": [1] * MANY}).encode()

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    with pytest.raises(APIError, match=TOO_MANY_VALUES):
        asyncio.run(read_json(request, ChatCompletionRequest))


def test_an_event_with_too_many_values_is_refused() -> None:
    with pytest.raises(InvalidEvent, match=TOO_MANY_VALUES):
        parse_json(json.dumps({"type": "session.update", "session": {"tools": [1] * MANY}}))


def test_a_line_of_a_batch_is_no_larger_than_a_body() -> None:
    lines = [json.dumps({"body": [1] * MANY}).encode(), b" " * JSON_BODY.bytes + b"{}"]
    _, errors = check_lines(list(enumerate(lines, 1)), "/v1/responses", set())
    assert [error["message"] for error in errors] == [TOO_MANY_VALUES, "the line is longer than 4096 KiB"]
