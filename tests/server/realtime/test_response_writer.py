"""Function calls on the wire: the events, their order, and what the language model reads of them afterwards."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from chat.types import NamedTool
from tests.server.realtime.conversation_client import Client, check_against_openai, hold_conversation, one_turn
from voice.function_calls import CANCELLED_OUTPUT
from voice.history import PENDING_OUTPUT, FunctionCall, FunctionCallOutput
from voice.turn_machine import Assistant

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
ARGUMENTS = '{"city": "Oslo"}'


def calling(client: Client, *arguments: str, text_words: int = 0) -> None:
    """The language model calls the function once for each `arguments`, after so many words of text."""
    client.language_model.calls = [("get_weather", each) for each in arguments or (ARGUMENTS,)]
    client.language_model.words_before_calls = text_words


async def answer(client: Client, output: str = "Rain.") -> None:
    """Add the output of the newest call."""
    call_id = client.last("response.function_call_arguments.done")["call_id"]
    item = {"type": "function_call_output", "call_id": call_id, "output": output}
    await client.send("conversation.item.create", item=item)


async def ask(client: Client, text: str = "What is the weather in Oslo?") -> None:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    await client.send("conversation.item.create", item=item)


def of_type(client: Client, type: str) -> list[dict[str, Any]]:
    return [event for event in client.events if event["type"] == type]


def test_a_spoken_turn_with_a_function_call_sends_its_events_in_the_order_that_clients_expect() -> None:
    async def scenario(client: Client) -> None:
        calling(client)
        await client.configure(tools=[WEATHER])
        await one_turn(client)
        first = client.types()
        assert first[first.index("response.created") :] == [
            "response.created",
            "response.output_item.added",
            "conversation.item.added",
            "response.function_call_arguments.delta",  # one: the response was complete when the turn ended
            "response.function_call_arguments.done",
            "response.output_item.done",
            "conversation.item.done",
            "response.done",
        ]
        await answer(client)
        await client.send("response.create")
        await asyncio.sleep(3)

    client = hold_conversation(scenario)
    check_against_openai(client.events)
    call = client.last("response.function_call_arguments.done")
    deltas = of_type(client, "response.function_call_arguments.delta")
    assert "".join(event["delta"] for event in deltas) == call["arguments"] == ARGUMENTS
    assert {event["call_id"] for event in deltas} == {call["call_id"]}
    first, second = [event["response"] for event in of_type(client, "response.done")]
    assert (first["status"], second["status"]) == ("completed", "completed")
    (item,) = first["output"]
    assert (item["type"], item["name"], item["arguments"], item["status"]) == (
        "function_call", "get_weather", ARGUMENTS, "completed",
    )  # fmt: skip
    assert second["output"][0]["content"][0]["transcript"] == "The capital of France is Paris."
    prompt = client.language_model.prompts[-1]
    assert [message.role for message in prompt] == ["system", "user", "assistant", "tool"]
    assert [(one.name, one.arguments) for one in prompt[2].tool_calls] == [("get_weather", ARGUMENTS)]
    assert (prompt[3].content, prompt[3].tool_call_id) == ("Rain.", prompt[2].tool_calls[0].id)
    read_while_the_client_worked = [each for each in client.language_model.prepared if each[-1].role == "assistant"]
    assert read_while_the_client_worked == [prompt[:3]]


def test_text_and_a_call_of_one_response_are_two_items_and_the_call_does_not_wait_for_the_audio() -> None:
    async def scenario(client: Client) -> None:
        calling(client, text_words=3)
        await client.configure(tools=[WEATHER])
        await one_turn(client)

    client = hold_conversation(scenario)
    check_against_openai(client.events)
    done = client.last("response.done")["response"]
    assert [item["type"] for item in done["output"]] == ["message", "function_call"]
    added = of_type(client, "response.output_item.added")
    assert [(event["output_index"], event["item"]["type"]) for event in added] == [(0, "message"), (1, "function_call")]
    assert client.last("response.function_call_arguments.done")["output_index"] == 1
    types = client.types()
    assert types.index("response.output_item.done") < types.index("response.output_audio.done")


def test_the_result_is_spoken_after_the_words_before_the_call_and_does_not_cut_them_off() -> None:
    async def scenario(client: Client) -> None:
        calling(client, text_words=3)
        await client.configure(tools=[WEATHER])
        await client.speak(1.0, 0.5)
        await client.speak(1.0, 0.0)
        await answer(client)
        await client.send("response.create")
        await client.speak(3.0, 0.0)
        first = of_type(client, "response.done")[0]["response"]["output"][0]
        await client.send("conversation.item.retrieve", item_id=first["id"])

    client = hold_conversation(scenario)
    assert [event["response"]["status"] for event in of_type(client, "response.done")] == ["completed", "completed"]
    assert client.last("conversation.item.retrieved")["item"]["content"][0]["transcript"] == "The capital of"


@pytest.mark.parametrize(
    ("choice", "passed"),
    [
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "name": "get_weather"}, NamedTool("get_weather")),
    ],
)
def test_a_tool_choice_of_the_session_or_of_the_response_reaches_the_language_model(choice: Any, passed: Any) -> None:
    async def scenario(client: Client) -> None:
        await client.configure(tools=[WEATHER])
        await ask(client)
        await client.send("response.create", response={"tool_choice": choice})
        await asyncio.sleep(3)
        await client.configure(tool_choice=choice)
        await ask(client)
        await client.send("response.create")
        await asyncio.sleep(3)

    client = hold_conversation(scenario)
    assert client.language_model.choices == [passed, passed]
    assert client.last("session.updated")["session"]["tool_choice"] == choice


def test_a_session_that_requires_calls_still_speaks_a_functions_output() -> None:
    async def scenario(client: Client) -> None:
        calling(client)
        await client.configure(tools=[WEATHER], tool_choice="required", output_modalities=["text"])
        await ask(client)
        await client.send("response.create")
        await asyncio.sleep(1)
        await answer(client)
        await client.send("response.create")
        await asyncio.sleep(1)
        await answer(client)
        await client.send("response.create", response={"tool_choice": "required"})
        await asyncio.sleep(1)

    client = hold_conversation(scenario)
    outputs = [event["response"]["output"][0]["type"] for event in of_type(client, "response.done")]
    assert outputs == ["function_call", "message", "function_call"]


@pytest.mark.parametrize("parallel", [True, False])
def test_more_than_one_call_is_made_only_if_the_client_allows_it(parallel: bool) -> None:
    async def scenario(client: Client) -> None:
        calling(client, ARGUMENTS, '{"city": "Rome"}')
        await client.configure(tools=[WEATHER], parallel_tool_calls=parallel)
        await ask(client)
        await client.send("response.create")
        await asyncio.sleep(3)

    client = hold_conversation(scenario)
    calls = client.last("response.done")["response"]["output"]
    assert [json.loads(call["arguments"])["city"] for call in calls] == ["Oslo", "Rome"][: 1 + parallel]
    assert len({call["call_id"] for call in calls}) == len(calls)
    check_against_openai(client.events)


def test_a_call_that_is_cancelled_before_it_is_complete_gets_an_output_that_says_so() -> None:
    async def scenario(client: Client) -> None:
        calling(client)
        await client.configure(tools=[WEATHER])
        await ask(client)
        await client.send("response.create")
        await asyncio.sleep(0.05)
        await client.send("response.cancel")
        await client.send("response.create", response={"tool_choice": "none"})
        await asyncio.sleep(3)

    client = hold_conversation(scenario)
    check_against_openai(client.events)
    (call,) = of_type(client, "response.done")[0]["response"]["output"]
    assert call["status"] == "incomplete"
    assert not of_type(client, "response.function_call_arguments.done")
    outputs = [
        e["item"] for e in of_type(client, "conversation.item.done") if e["item"]["type"] == "function_call_output"
    ]
    assert [(output["call_id"], output["output"]) for output in outputs] == [(call["call_id"], CANCELLED_OUTPUT)]
    assert [message.role for message in client.language_model.prompts[-1]] == ["system", "user"]


def test_a_slow_function_blocks_nothing_and_its_result_survives_an_interruption() -> None:
    async def scenario(client: Client) -> None:
        calling(client)
        await client.configure(tools=[WEATHER])
        await one_turn(client)
        client.language_model.calls = []
        await one_turn(client)  # the user goes on while the function runs
        await client.speak(1.0, 0.5)
        await answer(client)  # and speaks when it returns
        await client.speak(3.0, 0.0)

    client = hold_conversation(scenario)
    check_against_openai(client.events)
    during, after = client.language_model.prompts[-2:]
    assert [message.role for message in during] == ["system", "user", "assistant", "tool", "user"]
    assert during[3].content == PENDING_OUTPUT
    assert [message.role for message in after][-3:] == ["assistant", "tool", "user"]
    assert after[-2].content == "Rain."


def test_a_result_is_recorded_at_once_while_a_response_is_spoken_and_survives_every_interruption() -> None:
    def outputs(client: Client) -> list[str]:
        return [message.content for message in client.language_model.prompts[-1] if message.role == "tool"]

    async def scenario(client: Client) -> None:
        client.language_model.words = [" word"] * 60
        calling(client, text_words=40)
        await client.configure(tools=[WEATHER])
        await client.speak(1.0, 0.5)
        await client.speak(2.0, 0.0)
        assert client.conversation.session.state.assistant is Assistant.RESPONDING  # 4 s of audio are being played
        await answer(client)
        assert client.events[-1]["type"] == "conversation.item.done"
        assert client.conversation.session.history.items[-1].text == "Rain."
        client.language_model.calls = []
        await client.speak(1.0, 0.5)  # over the text before the call
        await client.speak(2.0, 0.0)
        assert outputs(client) == ["Rain."]
        await client.speak(1.0, 0.5)  # over the text that speaks the result
        await client.speak(2.0, 0.0)
        assert outputs(client) == ["Rain."]

    client = hold_conversation(scenario)
    check_against_openai(client.events)
    assert [event["response"]["status"] for event in of_type(client, "response.done")][:2] == ["completed"] * 2


@pytest.mark.parametrize("by_voice", [True, False])
def test_a_call_that_an_interruption_cancels_gets_an_output(by_voice: bool) -> None:
    async def scenario(client: Client) -> None:
        client.language_model.seconds_per_word = 0.3
        calling(client, text_words=2)
        await client.configure(tools=[WEATHER])
        await client.speak(1.0, 0.5)
        await client.speak(1.3, 0.0)
        assert "response.function_call_arguments.delta" in client.types()
        assert "response.function_call_arguments.done" not in client.types()
        if by_voice:
            await client.speak(1.0, 0.5)
        else:
            await client.send("response.cancel")
        await client.speak(2.0, 0.0)

    client = hold_conversation(scenario)
    call = next(item for item in client.conversation.session.history.items if isinstance(item, FunctionCall))
    output = next(item for item in client.conversation.session.history.items if isinstance(item, FunctionCallOutput))
    assert not call.complete
    assert (output.call_id, output.text) == (call.call_id, CANCELLED_OUTPUT)
    check_against_openai(client.events)


def test_nothing_is_called_while_the_user_may_still_go_on() -> None:
    async def scenario(client: Client) -> None:
        calling(client)
        await client.configure(tools=[WEATHER])
        await client.speak(1.0, 0.5)
        await client.speak(0.22, 0.0)
        assert client.language_model.prompts  # a speculative response is under way
        assert "response.created" not in client.types()
        await client.speak(1.0, 0.5)
        assert "response.function_call_arguments.delta" not in client.types()
        await client.speak(2.0, 0.0)

    client = hold_conversation(scenario)
    assert len(of_type(client, "response.function_call_arguments.done")) == 1


def updating(**session: Any) -> dict[str, Any]:
    return {"type": "session.update", "session": session}


def creating(**item: Any) -> dict[str, Any]:
    return {"type": "conversation.item.create", "item": item}


NOBODY = {"type": "function", "name": "nobody"}


@pytest.mark.parametrize(
    ("event", "code", "param"),
    [
        (updating(tools=[{"type": "function"}]), "missing_required_parameter", "session.tools.0.name"),
        (updating(tools=[WEATHER, WEATHER]), "invalid_value", "session.tools.1.name"),
        (updating(tools=[{**WEATHER, "parameters": {"type": "array"}}]), "invalid_value", "session.tools"),
        (updating(tools=[{**WEATHER, "colour": 1}]), "unknown_parameter", "session.tools.0.colour"),
        (updating(tool_choice=NOBODY), "invalid_value", "session.tool_choice.name"),
        (updating(tool_choice="perhaps"), "invalid_value", "session.tool_choice"),
        (
            {"type": "response.create", "response": {"tool_choice": NOBODY}},
            "invalid_value",
            "response.tool_choice.name",
        ),
        ({"type": "response.create", "response": {"colour": 1}}, "unknown_parameter", "response.colour"),
        (creating(type="function_call_output", call_id="call_x", output=""), "item_not_found", "item.call_id"),
        (creating(type="function_call", name="f", arguments="[1]"), "invalid_value", "item.arguments"),
    ],
)
def test_what_is_wrong_with_a_tool_is_reported(event: dict[str, Any], code: str, param: str) -> None:
    async def scenario(client: Client) -> None:
        await client.send(**event, event_id="evt_1")
        assert (client.error["code"], client.error["param"], client.error["event_id"]) == (code, param, "evt_1")

    hold_conversation(scenario)


def test_a_restored_conversation_may_contain_calls() -> None:
    async def scenario(client: Client) -> None:
        await ask(client)
        call = {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": ARGUMENTS}
        await client.send("conversation.item.create", item=call)
        await client.send(
            "conversation.item.create", item={"type": "function_call_output", "call_id": "c1", "output": "Sun."}
        )
        await client.send("conversation.item.retrieve", item_id=client.last("conversation.item.added")["item"]["id"])
        await client.send("response.create")
        await asyncio.sleep(3)

    client = hold_conversation(scenario)
    check_against_openai(client.events)
    assert client.last("conversation.item.retrieved")["item"]["output"] == "Sun."
    assert [message.role for message in client.language_model.prompts[-1]] == ["system", "user", "assistant", "tool"]


def test_a_field_that_is_null_gets_its_default() -> None:
    async def scenario(client: Client) -> None:
        await client.configure(tools=[WEATHER], tool_choice="required", instructions="Be brief.")
        await client.configure(tools=None, tool_choice=None, instructions=None, tracing=None)
        await client.configure(audio={"input": {"transcription": {"model": "whisper-1", "language": None}}})

    session = hold_conversation(scenario).last("session.updated")["session"]
    assert (session["tools"], session["tool_choice"], session["tracing"]) == ([], "auto", None)
    assert session["instructions"] != "Be brief."
    assert session["audio"]["input"]["transcription"] == {"model": "whisper-1", "language": "en", "prompt": ""}
