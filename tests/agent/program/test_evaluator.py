"""What programs come to, and that no text makes them do anything else, or take long."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.program.evaluator import FunctionCall, Outcome, read_clock, run_program
from agent.program.speech import answer
from agent.program.values import BadProgram, Clock

NOW = datetime(2026, 11, 22, 15, 0, tzinfo=ZoneInfo("Europe/Berlin"))  # a Sunday
FUNCTIONS = {"set_timer": ["hours", "minutes", "seconds", "name"], "set_alarm": ["time", "day"], "list_alarms": []}
MAX_S = 0.5


def run(program: str) -> Outcome:
    return run_program(program, NOW, FUNCTIONS)


def said(program: str) -> str:
    return " ".join(answer(value, unit, NOW) for value, unit in run(program).answers)


@pytest.mark.parametrize(
    ("program", "spoken"),
    [
        ("kids = 3\ndogs = 2\nanswer = kids, 'children'", "That's 3 children."),
        ("0.1 + 0.2", "That's 0.3."),
        ("answer = 1 + 1\nanswer = 2 ** 3", "That's 2. That's 8."),
        ("answer = 7 // 2 + 7 % 2 - -1", "That's 5."),
        ("answer = 10 / 4, 'dollars'", "That's 2.50 dollars."),
        ("answer = sqrt(2)", "That's about 1.41."),
        ("answer = round(2.567, 1) + floor(0.9) + ceil(0.1) + abs(-1)", "That's 4.6."),
        ("answer = 1 == 1 and 2 > 3", "No."),
        ("answer = 1 > 2 or 2 > 3 or 3 == 3", "Yes."),
        ("answer = max(hours(1), minutes(90))", "That's 1 hour and 30 minutes."),
        ("answer = 3 if 5 > 3 else 4", "That's 3."),
        ("answer = hours(1) == minutes(60)", "Yes."),
        ("answer = is_leap_year(1900)", "No."),
        ("answer = time('6:00 pm') + hours(3) - hours(1)", "It's 8:00 PM."),
        ("answer = time('11:00 pm') + hours(2)", "It's 1:00 AM on the next day."),
        ("answer = (time('midnight') - now) / minutes(1), 'minutes'", "That's 540 minutes."),
        ("answer = date('june 1') - date('march 3')", "That's 90 days."),
        ("answer = date('november 20') - today", "That's 363 days."),
        ("answer = date('friday') + weeks(2)", "It's Friday, December 11."),
        ("answer = date('january 31') + months(1)", "It's Sunday, February 28, 2027."),
        ("answer = date('christmas') > today", "Yes."),
        ("answer = now + hours(30)", "It's 9:00 PM on Monday, November 23."),
        ("answer = weekday(date('christmas'))", "It's a Friday."),
        ("answer = this_year - 1990, 'years old'", "That's 36 years old."),
        ("answer = time_in('Tokyo')", "It's 11:00 PM."),
        ("answer = convert_time(time('4:00 pm'), 'here', 'New York')", "It's 10:00 AM."),
        ("answer = convert_time(time('9:00 pm'), 'here', 'Tokyo')", "It's 5:00 AM on the next day."),
        ("answer = convert(1, 'foot', 'inch')", "That's 12 inches."),
        ("answer = convert(100, 'fahrenheit', 'celsius')", "That's about 37.78 degrees Celsius."),
        ("answer = convert(52, 'pound', 'kilogram') - 23", "That's about 0.5868 kilograms."),
        ("answer = 'Tom' if 5 > 6 else 'Ann'", "Ann."),
        ("answer = now > time('9:00 am')", "Yes."),
        ("answer = now + hours(9) < time('11:00 pm')", "No."),
        ("answer = now < time('midnight')", "Yes."),
        ("answer = time('11:30 am') + hours(1) > time('12:15 pm')", "Yes."),
        ("answer = time('2:00') - minutes(130)", "It's 11:50."),
        ("answer = (date('november 23') - now) / hours(1), 'hours'", "That's 9 hours."),
        ("answer = (now - date('november 21')) / hours(1), 'hours'", "That's 39 hours."),
        ("answer = date('yesterday') - now", "That's 1 day and 15 hours."),
        ("answer = date('november 1') - now", "That's 343 days and 9 hours."),
        ("answer = round(2.5) + round(0.125, 2)", "That's 3.13."),
        ("answer = convert(5, 'mile', 'mile') > convert(6, 'km', 'km')", "Yes."),
        ("answer = convert(5, 'mile', 'km') > 8", "Yes."),
        ("answer = min(convert(5, 'mile', 'mile'), convert(6, 'km', 'km'))", "That's 6 kilometers."),
        ("answer = date('friday') + hours(15) > now", "Yes."),
        ("answer = date('friday') + hours(15) - now", "That's 5 days."),
        ("answer = (time_in('Tokyo') - now) / hours(1), 'hours'", "That's 8 hours."),
    ],
)
def test_a_program_computes_what_is_said(program: str, spoken: str) -> None:
    assert said(program) == spoken


def test_calls_questions_and_refusals_are_read_and_nothing_is_called() -> None:
    calls = run("length = 5\nset_timer(minutes=length, name='eggs')\nlist_alarms()")
    assert calls.calls == (
        FunctionCall("set_timer", {"minutes": 5, "name": "eggs"}, {"minutes": "length 5", "name": "'eggs'"}),
        FunctionCall("list_alarms", {}, {}),
    )
    assert run("set_alarm(time('6:40 am'), 'tomorrow')").calls[0].arguments == {"time": "6:40 am", "day": "tomorrow"}
    assert run("ask('For how long?')").question == "For how long?"
    assert run("cannot('tell whether it snows')").refusal == "tell whether it snows"
    assert run("cannot('sing')\ncannot('dance')").refusal == "sing or dance"
    assert run("talk()").is_talk
    assert run("x = 2\nset_timer(minutes=5)\nanswer = x").computing == "x = 2\nanswer = x"


@pytest.mark.parametrize(
    ("program", "begin"),
    [
        ("x = 3\ny = 4", "x = 3\ny = 4\nanswer = "),
        ("x = 3\nanswer = x * y", "x = 3\ny = "),
        ("set_timer(minutes=length)", "length = "),
        ("answer = 1 / 0", ""),
    ],
)
def test_a_program_that_lacks_something_says_how_it_goes_on(program: str, begin: str) -> None:
    with pytest.raises(BadProgram) as raised:
        run(program)
    assert raised.value.begin == begin


@pytest.mark.parametrize(
    "program",
    [
        "answer = 1 / 0", "answer = 0 ** -1", "answer = 5 % 0", "answer = hours(1) / hours(0)", "answer = sqrt(-1)",
        "answer = (-8) ** (1 / 3)", "answer = 1e400", "answer = time('25:00')",
        "answer = date('february 30')", "answer = time_in('Atlantis')", "answer = convert(1, 'mile', 'kilogram')",
        "answer = today + days(10 ** 8)", "answer = now + years(9000)", "answer = 'a' * 10", "now = 3\nanswer = now",
        "answer = hours(2) > 90", "answer = max(hours(2), 90)", "answer = today > now",
        "answer = convert(5, 'mile', 'mile') > convert(6, 'kg', 'kg')",
        "x = 9 ** 256\nanswer = convert(1, 'm', 'm') * x * x", "x = 9 ** 256\nanswer = hours(x) * x",
        "x = 9 ** 256\nanswer = months(x) * x",
        "set_timer(1, 2, 3, 'x', 5)", "set_timer(1, hours=2)", "set_timer(length=1)", "unknown('x')", "", "# nothing",
    ],
)  # fmt: skip
def test_what_has_no_value_is_refused(program: str) -> None:
    with pytest.raises(BadProgram):
        run(program)


NESTED = "min(" * 300 + "1" + ")" * 300
HOSTILE = [
    "__import__('os').system('true')", "answer = __import__('os')", "open('/etc/passwd')", "eval('1')", "print(1)",
    "answer = (1).__class__", "answer = now.year", "answer = now[0]", "answer = lambda: 1", "(lambda: 1)()",
    "answer = [x for x in (1, 2)]", "answer = [1] * 9", "answer = {1: 2}", "answer = f'{now}'", "answer = (x := 3)",
    "answer = __builtins__", "import os", "def f(): pass", "class A: pass", "while True: pass", "for x in y: pass",
    "global x", "x += 1", "del x", "yield", "await x", "set_timer(*now)", "set_timer(**now)", "answer = ...",
    "answer = 1j", "answer = b'a'", "answer = None", "\0", "\ud800", "answer = 1\n" * 30, "9" * 3000, "-" * 1990 + "1",
    "answer = " + "1+" * 900 + "1", f"answer = {NESTED}", "answer = " + "9**" * 300 + "9", "answer = 9 ** 9 ** 9",
    "answer = 10 ** 5000", "a = 9 ** 99\n" * 12 + "answer = a ** 256 ** 2",
]  # fmt: skip


@pytest.mark.parametrize("program", HOSTILE)
def test_python_is_only_parsed_and_everything_has_a_limit(program: str) -> None:
    start = time.process_time()
    with pytest.raises(BadProgram):
        run(program)
    assert time.process_time() - start < MAX_S


@pytest.mark.timeout(5)
@pytest.mark.parametrize(
    "program",
    [
        "answer = round(1 / 3, 1000000000)", "answer = round(1 / 3, 10 ** 200)",
        "answer = round(10 ** 200, 0 - 10 ** 9)",
        "answer = convert(1, '9**9**9**9', 'meter')", "answer = convert(1, 'meter**9**9**9', 'meter')",
        "answer = convert(1, '(', 'meter')", "answer = convert(1, 'meter +', 'meter')",
        "answer = convert(1, 'm', \"'\")",
        "answer = convert(1, '', 'meter')", "answer = convert(1, 'lambda: 1', 'meter')",
        "answer = convert(10 ** 250 * 10 ** 250, 'mile', 'meter')",
    ],
)  # fmt: skip
def test_numbers_of_digits_and_names_of_units_have_limits_as_well(program: str) -> None:
    start = time.process_time()
    with pytest.raises(BadProgram):
        said(program)
    assert time.process_time() - start < 2  # the units may have to be loaded


PIECES = st.sampled_from(
    "answer = x 1 2.5 0 'a' ( ) [ ] , + - * / ** % // > == min max round sqrt now today time date hours months convert "
    "time_in weekday set_timer ask talk . : if else lambda not \n \n".split(" ")
)


@settings(deadline=None, max_examples=300)
@given(st.lists(PIECES, max_size=25))
def test_any_text_is_a_program_or_is_refused(pieces: list[str]) -> None:
    with suppress(BadProgram):
        said(" ".join(pieces))


@pytest.mark.parametrize(
    ("text", "clock"),
    [
        ("6:40", Clock(400, certain=False)), ("6 pm", Clock(1080)), ("6:00 p.m.", Clock(1080)), ("12 am", Clock(0)),
        ("12 pm", Clock(720)), ("12", Clock(720, certain=False)), ("18:30", Clock(1110)), ("0:15", Clock(15)),
        ("Noon", Clock(720)), ("midnight", Clock(0)),
    ],
)  # fmt: skip
def test_a_time_of_day_knows_whether_its_half_of_the_day_is_certain(text: str, clock: Clock) -> None:
    assert read_clock(text) == clock


@pytest.mark.parametrize("text", ["", "24:00", "6:60", "half six", "6:4", "100", "-1"])
def test_what_is_no_time_of_day_is_refused(text: str) -> None:
    with pytest.raises(BadProgram):
        read_clock(text)


def test_names_that_stand_for_names_are_not_written_out_again_and_again() -> None:
    doubled = "".join(f"a{n} = {' + '.join([f'a{n - 1}'] * 9)}\n" for n in range(1, 20))
    program = f"a0 = 1\n{doubled}set_timer(minutes=a19 / a19)"
    start = time.process_time()
    [call] = run(program).calls
    assert time.process_time() - start < MAX_S
    assert call.written["minutes"].startswith("a19 / a19 a18 + a18") and call.written["minutes"].endswith(" 1")


def test_a_computed_time_of_a_call_must_lie_on_its_day() -> None:
    functions = {"set_alarm": ["time", "day"]}
    outcome = run_program("set_alarm(time('6:50 am') - minutes(30), day='friday')", NOW, functions)
    assert outcome.calls[0].arguments == {"time": "6:20 am", "day": "friday"}
    with pytest.raises(BadProgram, match="another day"):
        run_program("set_alarm(time('1:00 am') - hours(2), day='friday')", NOW, functions)
