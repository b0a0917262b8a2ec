"""Responses of a given form, in the Realtime protocol, with tiny random weights."""

from __future__ import annotations

import asyncio
import csv
import json
import re
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from model.engine.conversation import Conversation
from model.engine.engine import Engine
from server.response_format import ResponseFormat
from tests.fakes import fake_speech_models
from tests.real_time import HANG_S
from tests.server.realtime.conversation_client import check_against_openai, new_conversation

SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
}
TRIP = {"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA}}
NAME = {"type": "json_schema", "json_schema": {"schema": {"type": "object", "properties": {"name": {"const": "Ada"}}}}}


class Client:
    """A conversation with a real engine, in real time."""

    def __init__(self, engine: Engine) -> None:
        self.events: list[dict[str, Any]] = []
        self._new: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.conversation = new_conversation(
            Conversation(engine),
            fake_speech_models(),
            lambda event: self._new.put_nowait(json.loads(event.model_dump_json())),
        )

    async def send(self, expected: str, type: str, **fields: Any) -> dict[str, Any]:
        """Send an event; returns the first event of the type `expected` that follows."""
        await self.conversation.receive(json.dumps({"type": type, **fields}))
        async with asyncio.timeout(HANG_S):
            while True:
                self.events.append(await self._new.get())
                if self.events[-1]["type"] == expected:
                    return self.events[-1]

    async def configure(self, expected: str = "session.updated", **session: Any) -> dict[str, Any]:
        return await self.send(expected, "session.update", session={"type": "realtime", **session})

    async def respond(self, **response: Any) -> dict[str, Any]:
        content = [{"type": "input_text", "text": "hello"}]
        item = {"type": "message", "role": "user", "content": content}
        await self.send("conversation.item.done", "conversation.item.create", item=item)
        done: dict[str, Any] = (await self.send("response.done", "response.create", response=response))["response"]
        return done


def converse(engine: Engine, scenario: Callable[[Client], Any]) -> Any:
    async def run() -> Any:
        client = Client(engine)
        try:
            return await scenario(client)
        finally:
            await client.conversation.close()
            check_against_openai(client.events)

    return asyncio.run(run())


def text_of(response: dict[str, Any]) -> str:
    assert response["status"] == "completed", response
    content = response["output"][0]["content"][0]
    return str(content.get("text", content.get("transcript")))


def is_trip(text: str) -> bool:
    jsonschema.validate(json.loads(text), SCHEMA)
    return True


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        (TRIP, is_trip),
        ({"type": "json_object"}, lambda text: isinstance(json.loads(text), dict)),
        ({"type": "choice", "choices": ["Paris", "hello"]}, {"Paris", "hello"}.__contains__),
        (
            {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[0-3]{2}"}},
            re.compile("[0-3]{2}").fullmatch,
        ),
        (
            {"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: "to " ("you" | "me")'}},
            {"to you", "to me"}.__contains__,
        ),
        (
            {"type": "csv", "csv": {"columns": ["name", "age"], "max_rows": 1}},
            lambda text: [len(row) for row in csv.reader(text.splitlines())][:1] == [2],
        ),
    ],
)
def test_a_response_has_the_form_that_its_request_asks_for(
    tiny_engine: Engine, wanted: dict[str, Any], matches: Callable[[str], object]
) -> None:
    async def scenario(client: Client) -> None:
        response = await client.respond(response_format=wanted, output_modalities=["text"], max_output_tokens=200)
        if response["status"] == "incomplete":  # random weights end few texts
            assert response["status_details"]["reason"] == "max_output_tokens" and wanted["type"] in (
                "json_object",
                "csv",
            )
        else:
            assert matches(text_of(response))

    converse(tiny_engine, scenario)


def test_a_sessions_form_holds_for_spoken_responses_and_a_request_may_ask_for_another(tiny_engine: Engine) -> None:
    choice = {"type": "choice", "choices": ["Paris", "hello"]}

    async def scenario(client: Client) -> None:
        updated = await client.configure(response_format=choice)
        assert updated["session"]["response_format"] == choice
        assert text_of(await client.respond()) in choice["choices"]
        assert any(event["type"] == "response.output_audio.delta" for event in client.events)
        await client.configure(response_format=TRIP, output_modalities=["text"])
        assert is_trip(text_of(await client.respond()))
        assert text_of(await client.respond(response_format=NAME)) in ('{"name": "Ada"}', "{}")
        free = await client.respond(response_format={"type": "text"}, max_output_tokens=5)
        assert not free["output"][0]["content"][0]["text"].startswith("{")
        updated = await client.configure(response_format=None)
        assert "response_format" not in updated["session"]

    converse(tiny_engine, scenario)


@pytest.mark.parametrize(
    ("wanted", "path"),
    [
        (
            {"type": "json_schema", "json_schema": {"schema": {"anyOf": [{"type": "strange"}, {"type": "null"}]}}},
            ".json_schema.schema.anyOf.0.type",
        ),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, ".json_schema.schema"),
        ({"type": "grammar", "grammar": {"syntax": "regex", "definition": "(?=a)b"}}, ".grammar.definition"),
        ({"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: missing"}}, ".grammar.definition"),
        ({"type": "choice"}, ""),
        ({"type": "strange"}, ".type"),
    ],
)
def test_a_form_that_cannot_be_enforced_is_an_error_that_names_the_place(
    tiny_engine: Engine, wanted: dict[str, Any], path: str
) -> None:
    async def scenario(client: Client) -> None:
        error = await client.configure("error", response_format=wanted)
        assert (error["error"]["code"], error["error"]["param"]) in (
            ("invalid_value", f"session.response_format{path}"),
            ("missing_required_parameter", f"session.response_format{path}"),
        )
        error = await client.send("error", "response.create", response={"response_format": wanted})
        assert error["error"]["param"] == f"response.response_format{path}"
        assert text_of(await client.respond(response_format=NAME, output_modalities=["text"]))  # it goes on

    converse(tiny_engine, scenario)


def test_the_characters_of_all_choices_have_a_limit() -> None:
    assert ResponseFormat(type="choice", choices=["x" * 128] * 256).as_grammar
    with pytest.raises(ValueError, match="32,768 characters together"):
        ResponseFormat(type="choice", choices=["x" * 129] * 256)
