"""What is sent to a chat-completions server, and what is read from its stream."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.remote.chat_stream import MAX_CALLS, MAX_CHARACTERS, ChatStream, RemoteCall, RemoteFailed, request_body
from chat.types import Ask, Message, NamedTool, Tool, ToolCall
from server.chat_completions.schema import ChatCompletionRequest
from tests.agent.remote.scripted_server import calls, chunk, text

TOOLS = (Tool("weather", "The weather.", {"type": "object", "properties": {"city": {"type": "string"}}}),)


def read(lines: list[object]) -> tuple[str, ChatStream]:
    stream = ChatStream()
    return "".join(stream.feed(line) for line in lines if isinstance(line, str)), stream


def test_a_request_is_one_that_our_own_api_accepts() -> None:
    call = ToolCall("call_1", "weather", '{"city": "Oslo"}')
    messages = [
        Message("system", "Be brief."),
        Message("user", "Is it cold?"),
        Message("assistant", "", (call,)),
        Message("tool", "4 degrees", tool_call_id="call_1"),
    ]
    body = request_body("big", Ask(messages, TOOLS, max_tokens=50, effort="high"))
    ChatCompletionRequest.model_validate_json(json.dumps(body))
    function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    made = [{"id": "call_1", "type": "function", "function": function}]
    assert body["messages"][2] == {"role": "assistant", "content": None, "tool_calls": made}
    named = request_body("big", Ask(messages[:2], TOOLS, NamedTool("weather"), parallel_tool_calls=True))
    ChatCompletionRequest.model_validate_json(json.dumps(named))
    assert named["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert "tools" not in request_body("big", Ask(messages, TOOLS, "none"))
    assert not {"max_tokens", "reasoning_effort", "tools"} & set(request_body("big", Ask(messages)))


def test_text_usage_and_the_end_are_read() -> None:
    words, stream = read([": a comment", "event: message", *text("The capital", " is Paris.")])
    assert words == "The capital is Paris."
    assert (stream.finish_reason, stream.usage, stream.done, stream.has_begun) == ("stop", (120, 7), True, True)


def test_calls_are_put_together() -> None:
    _, stream = read(calls(("weather", '{"city": "Oslo"}'), ("weather", '{"city": "Rome"}')))
    assert [(call.name, call.arguments) for call in stream.calls] == [
        ("weather", '{"city": "Oslo"}'),
        ("weather", '{"city": "Rome"}'),
    ]


def test_calls_with_one_number_are_told_apart_by_their_ids() -> None:
    """Some servers number every call 0, leave the number out, or send arguments as an object."""
    parts = [{"index": 0, "id": i, "function": {"name": "weather", "arguments": {"city": i}}} for i in ("a", "b")]
    _, stream = read([chunk({"tool_calls": [part]}) for part in parts])
    assert stream.calls == [RemoteCall("weather", f'{{"city": "{i}"}}', i) for i in ("a", "b")]
    for part in parts:
        del part["index"]
    _, stream = read([chunk({"tool_calls": parts})])
    assert [call.id for call in stream.calls] == ["a", "b"]


@given(st.text("<think>/ab\n", max_size=12), st.text("ab <", min_size=1, max_size=8), st.integers(1, 5))
def test_notes_before_the_text_are_left_out(notes: str, answer: str, size: int) -> None:
    if "</think>" in notes or "<think>".startswith(answer.strip()):
        return
    for written, expected in ((f"<think>{notes}</think>\n{answer}", answer.lstrip()), (f"x{answer}", f"x{answer}")):
        parts = [written[start : start + size] for start in range(0, len(written), size)]
        assert read([chunk({"content": part}) for part in parts] + [chunk({}, "stop")])[0].lstrip() == expected


def test_notes_that_never_end_are_no_answer() -> None:
    words, stream = read([chunk({"content": "<think>Hmm."}), chunk({}, "length")])
    assert (words, stream.has_begun) == ("", False)


@pytest.mark.parametrize("answer", ["<", "<thing>", "a <think> b"])
def test_text_that_only_looks_like_notes_stays(answer: str) -> None:
    assert read([chunk({"content": character}) for character in answer] + [chunk({}, "stop")])[0] == answer


@pytest.mark.parametrize(
    "lines",
    [
        ["data: hello"],
        ['data: {"choices": 3}'],
        ['data: {"choices": [{"delta": {"content": 3}}]}'],
        ['data: {"error": {"message": "overloaded"}}'],
        [chunk({"content": "x" * MAX_CHARACTERS}), chunk({"content": "x"})],
        [chunk({"tool_calls": [{"index": n, "function": {"name": "f"}}]}) for n in range(MAX_CALLS + 1)],
    ],
)
def test_what_is_no_chat_completion_is_an_error(lines: list[object]) -> None:
    with pytest.raises(RemoteFailed):
        read(lines)


@given(st.lists(st.text(max_size=60), max_size=20))
def test_any_lines_are_read_or_refused(lines: list[str]) -> None:
    with suppress(RemoteFailed):
        read([f"data: {line}" for line in lines] + list(lines))
