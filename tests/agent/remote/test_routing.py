"""Which questions go to the bigger model."""

from __future__ import annotations

import pytest

from agent.remote.routing import LONG_WORDS, reason_for_remote
from chat.types import Ask, Message, Tool

TOOLS = (Tool("weather"), Tool("remind"))


def reason(said: str, *more: Message, tools: tuple[Tool, ...] = TOOLS) -> str | None:
    messages = [Message("system", "Be brief."), Message("user", said), *more]
    return reason_for_remote("hard", Ask(messages, tools))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("What is the capital of France?", None),
        ("Think hard about how many squares a chessboard has.", "asked for"),
        ("Please think very carefully: is 91 prime?", "asked for"),
        ("Can you ask the big model who wrote that?", "asked for"),
        ("Can you think hard about that?", "asked for"),
        ("Use a smarter model.", "asked for"),
        ("I think hard work pays off.", None),
        ("Do you think hard cheese is better?", None),
        ("Is it a big model of a ship?", None),
        ("Check the weather in Oslo, and then write me a note.", "several steps"),
        ("If it rains tomorrow, remind me to take an umbrella.", "several steps"),
        ("What is the weather in Oslo?", None),
        (" ".join(["word"] * LONG_WORDS), "a long question"),
    ],
)
def test_the_words_decide(said: str, expected: str | None) -> None:
    assert reason(said) == expected


def test_several_steps_need_tools() -> None:
    assert reason("First beat the eggs and then the sugar, why?", tools=()) is None


def test_effort_and_scope_decide_first() -> None:
    messages = [Message("user", "Hello!")]
    assert reason_for_remote("hard", Ask(messages, effort="high")) == "high effort"
    assert reason_for_remote("hard", Ask(messages, effort="medium")) is None
    assert reason_for_remote("all", Ask(messages)) == "all questions"


def test_an_answer_from_several_results_counts_results_since_the_user_spoke() -> None:
    output = Message("tool", "14 degrees", tool_call_id="c")
    assert reason("Oslo or Bergen?", output) is None
    assert reason("Oslo or Bergen?", output, output) == "several steps"
    assert reason("Oslo or Bergen?", output, output, Message("assistant", "Oslo."), Message("user", "Thanks.")) is None


def test_the_steps_of_a_response_stay_where_the_first_one_was() -> None:
    output = Message("tool", "14 degrees", tool_call_id="c")
    assert reason("Think hard: which is warmer?", output) == "asked for"
