"""Numbers that nobody has said: what the user is asked then."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agent.program.check import MISSING, ignores_supposed_day, missing_number
from agent.program.evaluator import FunctionCall, Outcome, run_program

TIMER, ALARM = "For how long?", "For what time?"


@pytest.mark.parametrize(
    ("computing", "said", "missing"),
    [
        ("answer = 0.15 * 80", ["What's fifteen percent of eighty?"], ""),
        ("answer = 80 * (1 + 0.2)", ["Add 20 percent to 80."], ""),
        ("answer = 12 * 3", ["Three dozen eggs."], ""),
        ("answer = 7 * 2", ["Seven, and twice that."], ""),
        ("answer = 1250 / 4", ["1,250 divided by four"], ""),
        ("answer = time('6:40 pm') + hours(1)", ["It begins at twenty to seven in the evening."], ""),
        ("answer = convert(1, \"foot\", 'inch2')", ["How many inches are in a foot?"], ""),
        ("answer = x9 * 5", ["Five of them."], ""),
        ("answer = 11 ** 2", ["eleven squared"], ""),
        ("answer = 5 / 8 * 40", ["Five eighths of forty."], ""),
        ("answer = (35 + 48 + 19) / 3", ["What's the average of 35, 48 and 19?"], ""),
        ("answer = this_year - 1963", ["Born in '63, how old is she?"], ""),
        ("answer = this_year - 1984", ["Born in nineteen eighty four, how old is she?"], ""),
        ("answer = this_year - 1905", ["Born in nineteen oh five, how old is she?"], ""),
        ("answer = this_year - 1985", ["Born in nineteen eighty four, how old is she?"], MISSING),
        ("answer = this_year - 2005", ["Born in '05, how old is he?"], ""),
        ("answer = 80 * 0.85", ["What's 15 percent off 80?"], ""),
        ("answer = 3 * 7 * 24", ["How many hours are in three weeks?"], ""),
        ("answer = 3 * 168", ["How many hours are in three weeks?"], ""),
        ("answer = 60 * 2.5", ["Sixty miles an hour for two and a half hours."], ""),
        ("answer = 3 * 40", ["And times three?", "What's 40 plus 2?"], ""),
        ("answer = 3 * 40", ["How much are the tickets for all three of us?"], MISSING),
        ("answer = time('8:00') + hours(2)", ["The concert begins at eight. When does it end?"], MISSING),
    ],
)
def test_a_number_that_was_not_said_is_missed(computing: str, said: list[str], missing: str) -> None:
    assert missing_number(Outcome(computing=computing), said) == missing


@pytest.mark.parametrize(
    ("name", "arguments", "said", "question"),
    [
        ("set_timer", {"minutes": 5}, ["Five minutes, please."], ""),
        ("set_timer", {"minutes": 30}, ["half an hour"], ""),
        ("set_timer", {"hours": 1.5, "name": "roast 3"}, ["An hour and a half for the roast."], ""),
        ("set_timer", {"minutes": 10}, ["Set a timer."], TIMER),
        ("set_timer", {"minutes": 10}, ["Ten.", "Set a timer."], ""),
        ("set_alarm", {"time": "6:40 am"}, ["Wake me at twenty to seven."], ""),
        ("set_alarm", {"time": "18:30"}, ["at half past six"], ""),
        ("set_alarm", {"time": "noon"}, ["at lunch"], ""),
        ("set_alarm", {"time": "6:45"}, ["Wake me at quarter till seven."], ""),
        ("set_alarm", {"time": "6:45"}, ["Wake me at a quarter of seven."], ""),
        ("set_alarm", {"time": "7:50"}, ["Wake me at ten till eight."], ""),
        ("set_alarm", {"time": "12:30 am"}, ["Wake me at half past midnight."], ""),
        ("set_alarm", {"time": "11:45"}, ["Wake me at quarter to noon."], ""),
        ("set_alarm", {"time": "18:00"}, ["Wake me at eighteen hundred hours."], ""),
        ("set_alarm", {"time": "6:30"}, ["Wake me at 6.30."], ""),
        ("set_alarm", {"time": "6:30"}, ["Wake me at 630."], ""),
        ("set_alarm", {"time": "6:40"}, ["Wake me at 630."], ALARM),
        ("set_timer", {"hours": 2.75}, ["Two and three quarter hours."], ""),
        ("set_alarm", {"time": "7:00"}, ["Wake me tomorrow."], ALARM),
        ("set_alarm", {"time": "7 am"}, ["Wake me tomorrow."], ALARM),
        ("set_alarm", {"time": "7"}, ["Set an alarm."], ALARM),
        ("set_alarm", {"time": "7 am"}, ["Wake me at seven."], ""),
        ("set_alarm", {"time": "6:50 am"}, ["Wake me ten minutes before seven."], ""),
        ("set_timer", {"minutes": 90}, ["An hour and a half."], ""),
        ("set_timer", {"hours": 1, "minutes": 30}, ["An hour and a half."], ""),
        ("set_timer", {"minutes": 2, "seconds": 30}, ["Two and a half minutes."], ""),
        ("set_timer", {"minutes": 45}, ["An hour and a half."], TIMER),
        ("get_weather", {"day": "june 4"}, ["Will it rain?"], ""),
    ],
)
def test_a_call_with_a_time_or_a_length_that_nobody_named_becomes_a_question(
    name: str, arguments: dict[str, object], said: list[str], question: str
) -> None:
    written = {parameter: repr(value) for parameter, value in arguments.items()}
    assert missing_number(Outcome(calls=(FunctionCall(name, arguments, written),)), said) == question


def test_a_number_that_a_name_stands_for_counts_as_well() -> None:
    functions = {"set_alarm": ["time"]}
    program = "travel = 45\nset_alarm(time('8:00 am') - minutes(travel))"
    outcome = run_program(program, datetime(2026, 11, 22, tzinfo=UTC), functions)
    assert missing_number(outcome, ["Wake me 45 minutes before eight."]) == ""
    assert missing_number(outcome, ["Wake me in time for eight."]) == ALARM


@pytest.mark.parametrize(
    ("computing", "ignored"),
    [
        ("answer = today + days(10)", True),
        ("answer = now + hours(3)", True),
        ('today = date("tuesday")\nanswer = today + days(10)', True),
        ('day = date("tuesday")\nanswer = day + days(10)', False),
    ],
)
def test_the_present_is_not_what_was_supposed(computing: str, ignored: bool) -> None:
    outcome = Outcome(computing=computing)
    assert ignores_supposed_day(outcome, "If it was Tuesday today, what would it be in ten days?") is ignored
    assert not ignores_supposed_day(outcome, "What day is it in ten days?")
