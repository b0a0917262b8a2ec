"""The Responses API, as the official client sees it."""

from __future__ import annotations

import openai
import pytest
from openai import OpenAI

from model.engine.engine import Engine
from server.access.admission import Admission
from server.access.keys import ApiKeys
from server.api_errors import APIError
from server.budgets import STORED_RESPONSES
from server.chat_completions import responses
from server.chat_completions.generation import Update
from server.chat_completions.response_output import ResponseOutput
from tests.real_time import HANG_S
from tests.server.chat_completions.test_chat import QUESTION, expected_text
from tests.server.live_server import serving


def test_a_response_is_what_the_model_says(client: OpenAI, tiny_engine: Engine) -> None:
    response = client.responses.create(
        model="tiny", instructions=QUESTION[0]["content"], input=QUESTION[1]["content"], max_output_tokens=16
    )
    assert response.output_text == expected_text(tiny_engine, 16) != ""
    assert response.status == "incomplete" and response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage is not None and response.usage.output_tokens == 16
    assert response.instructions == QUESTION[0]["content"] and response.tools == []


def test_a_stream_adds_up_to_the_response(client: OpenAI, tiny_engine: Engine) -> None:
    events = list(client.responses.create(model="tiny", input=QUESTION, max_output_tokens=16, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created" and kinds[-1] == "response.incomplete"
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    done = [event.text for event in events if event.type == "response.output_text.done"]
    last = events[-1]
    assert last.type == "response.incomplete"
    assert done == [text] == [last.response.output_text] == [expected_text(tiny_engine, 16)]


def test_a_response_continues_another(client: OpenAI) -> None:
    first = client.responses.create(model="tiny", input="hello to you", max_output_tokens=8)
    second = client.responses.create(model="tiny", input="Paris", previous_response_id=first.id, max_output_tokens=8)
    spelled_out = client.responses.create(
        model="tiny",
        input=[
            {"role": "user", "content": "hello to you"},
            {"role": "assistant", "content": first.output_text},
            {"role": "user", "content": "Paris"},
        ],
        max_output_tokens=8,
    )
    assert second.output_text == spelled_out.output_text
    assert client.responses.retrieve(first.id).output_text == first.output_text
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError, match="no stored response"):
        client.responses.create(model="tiny", input="Paris", previous_response_id=first.id)


def test_only_the_key_that_made_a_response_can_read_continue_or_delete_it(tiny_engine: Engine) -> None:
    with serving(engine=tiny_engine, admission=Admission(keys=ApiKeys(["alice's", "bob's"]))) as address:
        alice, bob = (
            OpenAI(base_url=f"http://{address}/v1", api_key=key, max_retries=0, timeout=HANG_S)
            for key in ("alice's", "bob's")
        )
        name = alice.responses.create(model="tiny", input="Paris", max_output_tokens=1).id
        with pytest.raises(openai.NotFoundError, match="no stored response"):
            bob.responses.retrieve(name)
        with pytest.raises(openai.NotFoundError, match="no stored response"):
            bob.responses.delete(name)
        with pytest.raises(openai.NotFoundError, match="no stored response"):
            bob.responses.create(model="tiny", input="Go on.", previous_response_id=name)
        assert alice.responses.retrieve(name).id == name


def test_old_responses_are_forgotten_and_others_were_never_stored(
    client: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.responses.create(model="tiny", input="Paris", max_output_tokens=1)
    monkeypatch.setattr(responses, "memory", lambda value: STORED_RESPONSES.bytes // 8)
    ids = [client.responses.create(model="tiny", input="Paris", max_output_tokens=1).id for _ in range(3)]
    unstored = client.responses.create(model="tiny", input="Paris", max_output_tokens=1, store=False)
    assert client.responses.retrieve(ids[2]).id == ids[2]
    for forgotten in (ids[0], unstored.id):
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(forgotten)


def test_bad_items_get_a_sentence(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="'call_id' and 'output'"):
        client.responses.create(model="tiny", input=[{"type": "function_call_output"}])  # type: ignore[list-item, typeddict-item]
    with pytest.raises(openai.BadRequestError, match="has no messages"):
        client.responses.create(model="tiny", input=[], text={"verbosity": "low"})  # is written into the newest


def test_the_most_calls_of_a_response_are_at_least_one(client: OpenAI) -> None:
    response = client.responses.create(model="tiny", input="hello to you", max_output_tokens=16, max_tool_calls=2)
    assert response.max_tool_calls == 2
    with pytest.raises(openai.BadRequestError, match="max_tool_calls"):
        client.responses.create(model="tiny", input="hello to you", max_tool_calls=0)


def test_what_is_wrong_with_a_stream_is_said_by_its_status(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model="tiny", input="x " * 9000, stream=True)
    pattern = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}}
    tool = {"type": "function", "name": "f", "parameters": pattern, "strict": True}
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model="tiny", input="hello", tools=[tool], stream=True)
    with pytest.raises(openai.NotFoundError) as unknown:
        client.responses.create(model="tiny", input="hello", previous_response_id="resp_0")
    assert unknown.value.param == "previous_response_id"


def test_an_error_in_the_middle_of_a_stream_is_an_event(client: OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    add = ResponseOutput.add

    def failing(self: ResponseOutput, update: Update) -> list[dict[str, object]]:
        if len(self.choice.text) > 3:
            raise APIError(500, "it broke", code="broken")
        return list(add(self, update))

    monkeypatch.setattr(ResponseOutput, "add", failing)
    seen = list(client.responses.create(model="tiny", input="hello", max_output_tokens=30, stream=True))
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert seen[0].type == "response.created"
    assert seen[-2].type == "error" and seen[-2].message == "it broke"
    assert seen[-1].type == "response.failed" and seen[-1].response.status == "failed"


def test_a_response_can_be_read_and_cancelled_while_it_is_generated(client: OpenAI) -> None:
    stream = client.responses.create(model="tiny", input="hello", max_output_tokens=400, stream=True)
    created = next(iter(stream))
    assert created.type == "response.created"
    assert client.responses.retrieve(created.response.id).status == "in_progress"
    cancelled = client.responses.cancel(created.response.id)
    assert cancelled.status == "cancelled" and cancelled.output_text == "" and cancelled.model == "tiny"


def test_images_and_files_are_named_as_what_cannot_be_read(client: OpenAI) -> None:
    for part in (
        {"type": "input_image", "image_url": "http://x/y.png", "detail": "auto"},
        {"type": "input_file", "file_id": "file_1"},
    ):
        with pytest.raises(openai.BadRequestError, match=f"'{part['type']}' cannot be read"):
            client.responses.create(model="tiny", input=[{"role": "user", "content": [part]}])
