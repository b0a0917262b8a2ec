"""Requests that ask for several things: where they are separated, and what remains to be asked for."""

from __future__ import annotations

import re

import pytest

from voice.language_model import Message
from voice.request_parts import RequestParts, request_parts

TOOLS = {"time": r"\b(time|day|date)\b", "timer": r"\btimer\b", "note": r"\bwrite|note\b", "remind": r"\bremind\b"}


def suits(name: str, text: str) -> bool:
    return bool(re.search(TOOLS[name], text, re.IGNORECASE))


def parts(said: str) -> list[str]:
    return request_parts(said, lambda text: any(suits(name, text) for name in TOOLS))


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
        ("Write a note for Ann. And what time is it?", ["Write a note for Ann", "what time is it?"]),
        ("Remind me to eat, and also write a note.", ["Remind me to eat", "write a note."]),
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
        "Tell me a joke and set a timer.",
        "What time and date is it in Rome?",
        "Set a timer for the eggs, and make it six minutes on the timer.",
        "What time is it, and then write that down.",
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


def test_a_question_for_the_user_comes_first() -> None:
    parts = request("Set a timer and tell me the time.")
    assert next_part(parts, ["timer"], "For how long?") is None
