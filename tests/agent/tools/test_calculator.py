"""The tools that compute. tests/agent/program has what programs come to."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from agent.tools.calculator import calculator_tools
from agent.tools.function_tool import Caller

TOOLS = {tool.name: tool for tool in calculator_tools(lambda: datetime(2026, 11, 22, 15, 5, tzinfo=UTC))}


async def call(name: str, **arguments: Any) -> str:
    output = await TOOLS[name].run(arguments, Caller("me"))
    assert output.speech == output.text
    return output.speech


@pytest.mark.parametrize(
    ("name", "arguments", "spoken"),
    [
        ("calculate", {"program": "12 * (3 + 4.5)"}, "That's 90."),
        ("calculate", {"program": "eggs = 6\nanswer = 2 * eggs, 'eggs'"}, "That's 12 eggs."),
        ("calculate", {"program": "answer = 999 ** 50"}, "That's about 9.512 times ten to the power of 149."),
        ("convert", {"amount": 5, "unit": "miles", "to": "kilometers"}, "That's about 8.05 kilometers."),
        ("convert", {"amount": 0, "unit": "celsius", "to": "fahrenheit"}, "That's 32 degrees Fahrenheit."),
        ("add_duration", {"start": "now", "hours": 1, "minutes": 30}, "It's 4:35 PM."),
        ("add_duration", {"start": "3:30 pm", "minutes": -45}, "It's 2:45 PM."),
        ("add_duration", {"start": "friday", "days": 10}, "It's Monday, December 7."),
        ("add_duration", {"start": "today", "hours": 30}, "It's 6:00 AM on Monday, November 23."),
        ("days_between", {"start": "today", "end": "christmas"}, "That's 33 days."),
        ("days_between", {"start": "2026-06-01", "end": "2026-03-03"}, "That's 90 days."),
        ("get_time", {}, "It is 3:05 PM on Sunday, November 22, 2026."),
        ("get_time", {"place": "Tokyo"}, "It is 12:05 AM on Monday, November 23, 2026 in Tokyo."),
    ],
)
async def test_results_are_said(name: str, arguments: dict[str, Any], spoken: str) -> None:
    assert await call(name, **arguments) == spoken
    assert TOOLS[name].traits.read_only


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("calculate", {"program": "1 / 0"}, ".+"),
        ("calculate", {"program": "set_timer(minutes=5)"}, "not understood"),
        ("calculate", {"program": "ask('What?')"}, "no last line `answer = …`"),
        ("calculate", {"program": "1 + " * 600 + "1"}, "at most 2000"),
        ("convert", {"amount": 5, "unit": "miles", "to": "kilograms"}, "measure different things"),
        ("convert", {"amount": 5, "unit": "blorps", "to": "miles"}, "not a unit that is known"),
        ("convert", {"amount": 1e300, "unit": "miles", "to": "feet"}, "less than or equal to"),
        ("add_duration", {"start": "someday", "days": 1}, "no day"),
        ("add_duration", {"start": "today", "days": 10**12}, ".+"),
        ("days_between", {"start": "today", "end": "someday"}, "no day"),
        ("get_time", {"place": "Atlantis"}, "Ask for a larger city nearby"),
    ],
)
async def test_what_cannot_be_computed_is_an_error_for_the_language_model(
    name: str, arguments: dict[str, Any], error: str
) -> None:
    with pytest.raises(ValueError, match=error):
        await call(name, **arguments)
