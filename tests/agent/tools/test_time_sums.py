"""Sums with times and days, in the words of the user."""

from __future__ import annotations

import re
from datetime import datetime

import pytest

from agent.tools.function_tool import NO_RESULT, Caller
from agent.tools.time_questions import certain_words, time_sum_tools
from agent.tools.time_sums import work_out
from agent.tools.when import UnknownTime

NOW = datetime(2026, 11, 22, 15, 0).astimezone()  # a Sunday
[TOOL] = time_sum_tools(lambda: NOW)

SUMS = [
    ("If the film starts at 8:15 p.m. and lasts two hours, when does it end?", "It is 10:15 PM."),
    ("What time is it ninety minutes after half past ten?", "It is 12:00."),
    ("It's ten to five. What time was it three hours ago?", "It is 1:50."),
    ("My train leaves at 7 a.m. and I need 40 minutes to the station. When must I leave?", "It is 6:20 AM."),
    ("I fall asleep at 11 p.m. and sleep for nine hours. When do I wake up?", "It is 8:00 AM on the next day."),
    ("How long is it from 9:30 to noon?", "It is 2 hours and 30 minutes."),
    ("How many minutes are there between 10 past 4 and a quarter to five?", "It is 35 minutes."),
    ("What day of the week is five days after Tuesday?", "It is Sunday."),
    ("If today is Friday, what day is it in ten days?", "It is Monday."),
    ("If yesterday was Monday, which day is tomorrow?", "It is Wednesday."),
    ("Which weekday comes three days before Monday?", "It is Friday."),
    ("What's the date in two weeks?", "It is Sunday, December 6, 2026."),
    ("What date was it three days ago?", "It was Thursday, November 19, 2026."),
    ("What time will it be in three hours?", "It is 6:00 PM."),
    ("How long is it until 4:30 p.m.?", "It is 1 hour and 30 minutes."),
    ("How many days until Christmas?", "It is 33 days until Friday, December 25."),
]


@pytest.mark.parametrize("said, result", SUMS)
def test_sums_are_worked_out(said: str, result: str) -> None:
    assert certain_words([said], NOW) == said
    assert work_out(said, NOW) == result


@pytest.mark.parametrize(
    "said",
    [
        "What time is it in Tokyo?",
        "Remind me in two hours to call Peter at 5 p.m.",
        "Tell me a story about a day at the beach.",
        "How many days does April have?",
        "Set a timer for ten minutes, please.",
        "Who won the cup in 1998?",
        "How long do I have to boil an egg?",
    ],
)
def test_other_requests_are_left_to_other_tools_or_none(said: str) -> None:
    assert not re.search(TOOL.traits.said, said, re.IGNORECASE)
    assert certain_words([said], NOW) is None


async def test_what_is_not_understood_is_left_to_the_language_model() -> None:
    with pytest.raises(UnknownTime):
        work_out("What is three o'clock plus the time of a walk?", NOW)
    said = "When does a walk end that starts at 3:00 and takes a while, today?"
    assert (await TOOL.run({}, Caller("me", said))).text == NO_RESULT
