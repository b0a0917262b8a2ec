"""Function calls and answers of a given form, as the official client sees them. The tiny model's words make no sense;
that they follow the grammar is what counts."""

from __future__ import annotations

import csv
import io
import json
from typing import Any, Literal

import httpx
import jsonschema
import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from server.request_body import MAX_VALUES
from tests.real_time import HANG_S
from tests.server.chat_completions.test_chat import QUESTION

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS: Any = [{"type": "function", "function": {"name": "weather", "description": "Weather", "parameters": PARAMETERS}}]


def test_a_required_call_matches_its_schema(client: OpenAI) -> None:
    completion = client.chat.completions.create(model="tiny", messages=QUESTION, tools=TOOLS, tool_choice="required")
    (choice,) = completion.choices
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    (call,) = choice.message.tool_calls or ()
    assert call.type == "function" and call.function.name == "weather" and call.id.startswith("call_")
    jsonschema.validate(json.loads(call.function.arguments), PARAMETERS)
    answer = client.chat.completions.create(
        model="tiny",
        messages=[
            *QUESTION,
            choice.message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
        ],
        tools=TOOLS,
        tool_choice="none",
        max_tokens=5,
    )
    assert answer.choices[0].message.content and not answer.choices[0].message.tool_calls


def test_a_streamed_call_adds_up(client: OpenAI) -> None:
    named: Any = {"type": "function", "function": {"name": "weather"}}
    whole = client.chat.completions.create(model="tiny", messages=QUESTION, tools=TOOLS, tool_choice=named)
    chunks = list(
        client.chat.completions.create(model="tiny", messages=QUESTION, tools=TOOLS, tool_choice=named, stream=True)
    )
    pieces = [piece for chunk in chunks for piece in chunk.choices[0].delta.tool_calls or ()]
    assert [piece.function.name for piece in pieces if piece.function and piece.function.name] == ["weather"]
    assert len({piece.id for piece in pieces} - {None}) == 1 and {piece.index for piece in pieces} == {0}
    arguments = "".join(piece.function.arguments or "" for piece in pieces if piece.function)
    (call,) = whole.choices[0].message.tool_calls or ()
    assert call.type == "function" and arguments == call.function.arguments
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_a_call_through_the_responses_api(client: OpenAI) -> None:
    tools: Any = [{"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": True}]
    events = list(
        client.responses.create(model="tiny", input="hello", tools=tools, tool_choice="required", stream=True)
    )
    deltas = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
    (done,) = [event for event in events if event.type == "response.function_call_arguments.done"]
    last = events[-1]
    assert last.type == "response.completed"
    (item,) = last.response.output
    assert item.type == "function_call" and item.name == "weather" and deltas == done.arguments == item.arguments
    jsonschema.validate(json.loads(item.arguments), PARAMETERS)
    answer = client.responses.create(
        model="tiny",
        previous_response_id=last.response.id,
        input=[{"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}],
        tools=tools,
        tool_choice="none",
        max_output_tokens=4,
    )
    assert answer.output_text


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_an_answer_matches_its_schema(client: OpenAI, api: str) -> None:
    if api == "chat":
        wanted: Any = {"type": "json_schema", "json_schema": {"name": "trip", "schema": PARAMETERS}}
        completion = client.chat.completions.create(model="tiny", messages=QUESTION, response_format=wanted)
        assert completion.choices[0].finish_reason == "stop"
        text = completion.choices[0].message.content or ""
    else:
        config: Any = {"format": {"type": "json_schema", "name": "trip", "schema": PARAMETERS}}
        text = client.responses.create(model="tiny", input="hello", text=config).output_text
    jsonschema.validate(json.loads(text), PARAMETERS)


@pytest.mark.parametrize(
    ("wanted", "allowed"),
    [
        ({"type": "choice", "choices": ["Paris", "hello"]}, {"Paris", "hello"}),
        ({"type": "grammar", "grammar": {"syntax": "regex", "definition": "[0-3]"}}, set("0123")),
        ({"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: "to" | "you"'}}, {"to", "you"}),
    ],
)
def test_an_answer_follows_other_grammars(client: OpenAI, wanted: Any, allowed: set[str]) -> None:
    completion = client.chat.completions.create(model="tiny", messages=QUESTION, response_format=wanted)
    assert completion.choices[0].message.content in allowed
    assert client.responses.create(model="tiny", input="hello", text={"format": wanted}).output_text in allowed


def test_ready_grammars_for_tables_and_elements(client: OpenAI) -> None:
    table: Any = {"type": "csv", "csv": {"columns": ["name", "age"], "max_rows": 1}}
    completion = client.chat.completions.create(
        model="tiny", messages=QUESTION, response_format=table, temperature=1, seed=2
    )
    rows = list(csv.reader(io.StringIO(completion.choices[0].message.content or "", newline="")))
    assert rows[0] == ["name", "age"] and [len(row) for row in rows] == [2, 2]
    assert completion.choices[0].finish_reason == "stop"
    element: Any = {"type": "xml", "xml": {"root": "person", "children": ["name", "age"]}}
    response = client.responses.create(model="tiny", input="hello", text={"format": element}, max_output_tokens=60)
    assert response.output_text.startswith("<person><name>")
    with pytest.raises(openai.BadRequestError, match="needs the field 'csv'"):
        client.chat.completions.create(model="tiny", messages=QUESTION, response_format={"type": "csv"})  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("options", "param", "words"),
    [
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "strange"}}}},
            "response_format.json_schema.schema.type",
            "strange",
        ),
        ({"response_format": {"type": "json_schema"}}, "response_format", "'json_schema'"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "strange"}}}]},
            "tools[0]",
            "strange",
        ),
        ({"tool_choice": "required"}, None, "no tools"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "g"}}}, None, "'g'"),
        ({"tools": [{"type": "function", "function": {"name": "not a name"}}]}, "tools[0].function.name", "pattern"),
    ],
)
def test_bad_tools_and_formats_get_a_sentence(
    client: OpenAI, options: dict[str, Any], param: str | None, words: str
) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model="tiny", messages=QUESTION, **options)
    assert words in str(error.value)
    assert (error.value.param or "").startswith(param or "")


def test_a_form_that_cannot_be_enforced_is_refused_before_a_stream_begins(client: OpenAI) -> None:
    wanted: Any = {"type": "json_schema", "name": "x", "schema": {"properties": {"a": {"type": "strange"}}}}
    with pytest.raises(openai.BadRequestError) as error:
        client.responses.create(model="tiny", input="hello", text={"format": wanted}, stream=True)
    assert error.value.param == "text.format.schema.properties.a.type"


@pytest.mark.parametrize("path", ["chat/completions", "responses", "realtime/client_secrets"])
@pytest.mark.parametrize(
    "many", [[0] * MAX_VALUES, [[{}]] * (MAX_VALUES // 2), dict.fromkeys(map(str, range(MAX_VALUES)))]
)
def test_a_body_of_countless_values_is_refused_before_each_of_them_is_an_error(
    address: str, path: str, many: Any
) -> None:
    for body in ({"messages": many, "input": many, "session": {"include": many}}, many):
        response = httpx.post(f"http://{address}/v1/{path}", json=body, timeout=HANG_S)
        assert response.status_code == 413 and "20,000 values" in response.json()["error"]["message"]


class Weather(BaseModel):
    """The weather of a city."""

    city: Literal["Paris", "Rome"]


def test_what_the_official_client_has_returned_can_be_sent_back(client: OpenAI) -> None:
    tool = openai.pydantic_function_tool(Weather)
    parsed = client.chat.completions.parse(model="tiny", messages=QUESTION, tools=[tool], tool_choice="required")
    called = parsed.choices[0].message
    assert called.tool_calls and isinstance(called.tool_calls[0].function.parsed_arguments, Weather)
    output: Any = {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "sunny"}
    plain = client.chat.completions.create(model="tiny", messages=QUESTION, max_tokens=4).choices[0].message
    refusal: Any = {"role": "assistant", "content": None, "refusal": "No."}
    dumped = plain.model_dump()
    for earlier in ([called, output], [called.model_dump(), output], [{**dumped, "parsed": None}], [dumped], [refusal]):
        messages: Any = [*QUESTION, *earlier, {"role": "user", "content": "and?"}]
        assert client.chat.completions.create(model="tiny", messages=messages, max_tokens=4).choices
    first = client.responses.create(model="tiny", input=QUESTION, max_output_tokens=4)
    items: Any = [*QUESTION, *(item.model_dump(by_alias=True) for item in first.output), QUESTION[-1]]
    assert client.responses.create(model="tiny", input=items, max_output_tokens=4).output
