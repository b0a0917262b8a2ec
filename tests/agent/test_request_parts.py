"""Requests that ask for several things: where they are separated, what remains to be asked for, and how responses take
them part by part, on a virtual clock."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from agent.request_parts import RequestParts, request_parts
from agent.tools.protocol import ToolOutput, ToolTraits
from chat.types import Message
from tests.voice.fake_tools import FakeTools
from tests.voice.session_harness import SessionHarness, response_texts, run_session
from voice import events
from voice.history import Item

TOOLS = {"time": r"\b(time|day|date)\b", "timer": r"\btimer\b", "note": r"\bwrite|note\b", "remind": r"\bremind\b"}


def suits(name: str, text: str) -> bool:
    return name in TOOLS and bool(re.search(TOOLS[name], text, re.IGNORECASE))


def parts(said: str) -> list[str]:
    return request_parts(said, lambda text: [name for name in TOOLS if suits(name, text)])


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            "What time is it in Tokyo, and set a timer for one minute.",
            ["What time is it in Tokyo", "set a timer for one minute."],
        ),
        ("Set a timer for an hour and tell me the time.", ["Set a timer for an hour", "tell me the time."]),
        ("What day is it? Then set a timer.", ["What day is it", "set a timer."]),
        ("A timer for tea, then a timer for rice and beans", ["A timer for tea", "a timer for rice and beans"]),
        (
            "What day is it in Rome, and what time is it in Cairo?",
            ["What day is it in Rome", "what time is it in Cairo?"],
        ),
        ("Tell me what time it is and set a timer.", ["Tell me what time it is", "set a timer."]),
        ("Find my flight and tell me what time that is.", ["Find my flight", "tell me what time that is."]),
        ("Write a note for Ann. And what time is it?", ["Write a note for Ann", "what time is it?"]),
        ("Remind me to eat, and also write a note.", ["Remind me to eat", "write a note."]),
        ("What time is it, and then write that down.", ["What time is it", "write that down."]),
    ],
)
def test_requests_for_several_tools_are_separated(said: str, expected: list[str]) -> None:
    assert parts(said) == expected


@pytest.mark.parametrize(
    "said",
    [
        "Set a timer for five minutes and thirty seconds.",
        "Remind me to check the time and to write a note.",
        "Write down bread, butter and a timer.",
        "If it is past noon, set a timer and write a note.",
        "What time and date is it in Rome?",
        "In ten minutes, remind me to write a note.",
        "When I am home, set a timer.",
        "Text Ann that it is late and write a note.",
        "Set a timer for the eggs, and make it six minutes on the timer.",
        "A timer for the note and time of the day.",
        "What time is it in Trinidad and Tobago?",
        "Hello there.",
        "",
    ],
)
def test_other_requests_stay_whole(said: str) -> None:
    assert parts(said) == [said]


def request(said: str) -> RequestParts:
    return RequestParts([Message("system", "Be brief."), Message("user", said)], list(TOOLS), suits)


def next_part(parts: RequestParts, made: list[str], said: str = "Done.") -> str | None:
    prompt = parts.next_prompt(said, made)
    assert prompt is None or prompt[:-1] == [Message("system", "Be brief.")]  # it is asked in place of the request
    return None if prompt is None else prompt[-1].content


def test_what_no_call_was_made_for_is_asked_next() -> None:
    parts = request("What time is it, then a timer for tea, then a timer for rice.")
    assert next_part(parts, []) is None
    assert next_part(parts, ["time"]) == "a timer for tea"
    assert next_part(parts, ["time", "timer"]) == "a timer for rice."
    assert next_part(parts, ["time", "timer", "timer"]) is None


def test_a_call_is_about_one_part() -> None:
    parts = request("A timer for tea, then a timer for rice, and what time is it?")
    assert parts.asked_with(["timer"]) == "A timer for tea"
    assert parts.asked_with(["timer", "timer"]) == "a timer for rice"
    assert parts.asked_with(["timer", "time"]) == "what time is it?"
    assert parts.asked_with(["time", "time"]) is None
    assert request("A timer for tea.").asked_with(["timer"]) is None


def test_calls_may_come_in_another_order() -> None:
    parts = request("What time is it, and set a timer.")
    assert next_part(parts, ["timer"]) == "What time is it"
    assert next_part(parts, ["timer"], "I cannot tell.") is None  # it is asked once only


def test_the_first_part_is_asked_alone_and_the_next_one_whether_it_needed_a_call_or_not() -> None:
    parts = request("Who wrote Hamlet? And set a timer for tea.")
    whole = [Message("system", "Be brief."), Message("user", "Who wrote Hamlet? And set a timer for tea.")]
    first = Message("user", "Who wrote Hamlet", whole=whole[1].content)
    assert parts.first_prompt(whole) == [whole[0], first]
    assert next_part(parts, []) == "set a timer for tea."
    one = request("Set a timer for tea.")
    assert one.first_prompt(whole) == whole and next_part(one, []) is None


def test_a_part_that_needs_a_result_follows_what_the_calls_returned() -> None:
    parts = request("What time is it? Write that down.")
    prompt = parts.next_prompt("It is noon.", ["time"], ["noon"])
    assert prompt is not None
    assert [message.content for message in prompt] == ["Be brief.", "Result of time: noon", "Write that down."]
    assert parts.asked_with(["time", "note"]) == "Write that down."
    assert parts.asked_with(["time"]) == "What time is it"


def test_results_are_told_only_where_a_part_may_mean_them() -> None:
    for said, told in (
        ("what time is that", True),
        ("write the gate down", True),
        ("tell me what time it is", False),
        ("what day is it", False),
    ):
        prompt = request(f"Look up my flight, and {said}.").next_prompt("At gate 5.", ["look"], ["gate 5"])
        assert prompt is not None and prompt[-1].content == f"{said}."
        assert (len(prompt) == 3) == told


def test_an_answer_is_about_the_part_that_was_called_for() -> None:
    system, asked = Message("system", "Be brief."), Message("user", "Look up my flight, and what time is that?")
    parts, later = request(asked.content), Message("tool", "Gate 5.")
    narrowed = parts.narrowed([system, asked, later], ["look"])
    assert narrowed == [system, Message("user", "Look up my flight"), later]
    assert parts.narrowed([system, Message("user", "what time is that?")], ["look", "time"])[-1].content == (
        "what time is that?"
    )
    whole = request("Look up my flight.")
    assert whole.narrowed([system, asked], ["look"]) == [system, asked]


def test_a_part_that_no_tool_suits_is_not_asked_for() -> None:
    assert next_part(request("Tell me a joke and set a timer."), ["timer"]) is None


def test_a_question_for_the_user_comes_first() -> None:
    parts = request("Set a timer and tell me the time.")
    assert next_part(parts, ["timer"], "For how long?") is None


def call_by(harness: SessionHarness, choose: Callable[[str, Sequence[str]], str | None]) -> None:
    """Let the language model call what `choose` says, by the newest message and the tools on offer."""
    model, reply = harness.language_model, harness.language_model.reply

    async def call_chosen(messages, **options):  # type: ignore[no-untyped-def]
        name = choose(messages[-1].content, options["offered"].names)
        model.calls = [(name, "{}")] if name is not None else []
        async for progress in reply(messages, **options):
            yield progress

    model.reply = call_chosen  # type: ignore[method-assign]


def what_suits(newest: str, offered: Sequence[str]) -> str:
    return "write" if newest.startswith("write") else "look"


def test_a_request_for_two_things_takes_a_second_step() -> None:
    known = {"look": ToolTraits(read_only=True, said="weather"), "write": ToolTraits(said="write")}
    tools = FakeTools(known, output=ToolOutput("done", "Done."))

    async def scenario(harness: SessionHarness) -> None:
        model = harness.language_model
        call_by(harness, what_suits)
        harness.recognizer.text = "What is the weather, and then write a letter."
        await harness.ask_question(5.0)
        assert model.prompts[0][-1].content == "What is the weather"
        assert [(message.role, message.content) for message in model.prompts[-1][1:]] == [("user", "write a letter.")]
        assert tools.said == "write a letter."

    harness = run_session(scenario, tools.settings, tools)
    assert [name for name, _ in tools.started] == ["look", "write"]
    assert response_texts(harness) == ["Done. Done."]
    (done,) = harness.events_of(events.ResponseDone)
    assert [step.name for step in done.metrics.tools] == ["look", "write"]
    assert [item.text for item in harness.session.history.items if isinstance(item, Item) and item.role == "user"] == [
        "What is the weather, and then write a letter."
    ]


@pytest.mark.parametrize("settings", [{"tool_choice": "none"}, {"grammar": object()}, {}])
def test_a_response_with_a_form_of_its_own_is_not_taken_part_by_part(settings: dict[str, Any]) -> None:
    tools = FakeTools({"look": ToolTraits(said="weather"), "write": ToolTraits(said="write")})

    async def scenario(harness: SessionHarness) -> None:
        harness.recognizer.text = "What is the weather, and then write a letter."
        await harness.ask_question(5.0)

    harness = run_session(scenario, replace(tools.settings, **settings), tools)
    asked = [prompt[-1].content for prompt in harness.language_model.prompts]
    assert ("What is the weather" in asked) == (not settings)


def test_a_tool_that_names_no_words_suits_a_part_with_words_that_describe_it() -> None:
    tools = FakeTools({"find_contact": ToolTraits(read_only=True), "send_message": ToolTraits(), "pay": ToolTraits()})

    def what_is_offered(newest: str, offered: Sequence[str]) -> str | None:
        return ("find_contact" if "pay" in offered else offered[0]) if offered else None

    async def scenario(harness: SessionHarness) -> None:
        call_by(harness, what_is_offered)
        harness.recognizer.text = "Find the contact of Anna and message her that I am late."
        await harness.ask_question(5.0)

    run_session(scenario, tools.settings, tools)
    assert [name for name, _ in tools.started] == ["find_contact", "send_message"]


def test_a_part_that_needs_a_result_is_asked_for_after_it() -> None:
    known = {"look": ToolTraits(read_only=True, said="weather"), "write": ToolTraits(said="write")}
    tools = FakeTools(known, output=ToolOutput("14 degrees", "It is 14 degrees."))

    async def scenario(harness: SessionHarness) -> None:
        model = harness.language_model
        call_by(harness, what_suits)
        harness.recognizer.text = "What is the weather, and write that down."
        await harness.ask_question(5.0)
        assert [message.content for message in model.prompts[-1][1:]] == [
            "Result of look: 14 degrees", "write that down.",
        ]  # fmt: skip

    run_session(scenario, tools.settings, tools)
    assert [name for name, _ in tools.started] == ["look", "write"]
    assert (tools.said, tools.known_before) == ("write that down.", "14 degrees")
