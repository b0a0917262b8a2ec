"""Questions that leave nothing to understand, and those that do."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from agent.closed_forms import closed_form
from agent.program.evaluator import run_program
from agent.program.speech import answer

NOW = datetime(2026, 11, 22, 15, 0, tzinfo=ZoneInfo("Europe/Berlin"))  # a Sunday


@pytest.mark.parametrize(
    ("said", "spoken"),
    [
        ("What's fifteen percent of eighty?", "That's 12."), ("What is 17 times 23?", "That's 391."),
        ("Hey Rejoinder, 3 x 4, please.", "That's 12."), ("Add five, six and seven.", "That's 18."),
        ("Divide 1,250 by 4.", "That's 312.5."), ("What's the square root of sixteen?", "That's 4."),
        ("Two to the power of ten", "That's 1,024."), ("What is minus five plus three?", "That's minus 2."),
        ("What's three and a half plus two?", "That's 5.5."), ("Half of 90", "That's 45."),
        ("What is 2.5 million times 2?", "That's 5,000,000."), ("What's 20% of 80?", "That's 16."),
        ("What is 50% of 2.5 million?", "That's 1,250,000."), ("8 ÷ 2", "That's 4."),
        ("1000 to the power of 50", "That's 1 times ten to the power of 150."),
        ("What time is it?", "It's 3:00 PM."), ("What time is it in Tokyo?", "It's 11:00 PM in Tokyo."),
        ("What's the date today?", "It's Sunday, November 22."),
        ("What time will it be in two hours?", "It's 5:00 PM."), ("What time is it in half an hour?", "It's 3:30 PM."),
        ("What time was it 20 minutes ago?", "It's 2:40 PM."),
        ("What time is it 90 minutes after 3:15 PM?", "It's 4:45 PM."),
        ("What time is three hours before noon?", "It's 9:00 AM."),
        ("How many days until Christmas?", "That's 33 days."),
        ("How long is it until June 1st?", "That's 191 days."),
        ("What day is it in ten days?", "It's Wednesday, December 2."),
        ("What day was it ten days ago?", "It's Thursday, November 12."),
        ("What's the date three weeks from Friday?", "It's Friday, December 18."),
        ("How many feet are in a mile?", "That's 5,280 feet."),
        ("How many kilometers is 5 miles?", "That's about 8.05 kilometers."),
        ("Convert 100 Fahrenheit to Celsius.", "That's about 37.78 degrees Celsius."),
        ("What is half a mile in meters?", "That's 804.672 meters."),
        ("How many square feet is an acre?", "That's 43,560 square feet."),
        ("Add 1,000, 20 and 3.", "That's 1,023."), ("Multiply 5, 6 and 7.", "That's 210."),
        ("What's ten minus half of ten?", "That's 5."), ("Half of 10 divided by 2", "That's 2.5."),
        ("Eight divided by the square root of 16", "That's 2."), ("Three squared plus four squared", "That's 25."),
        ("What is 123,456 and a half times 2?", "That's 246,913."), ("What's 9 divided by 8?", "That's 1.125."),
        ("What time is it in UTC?", "It's 2:00 PM in UTC."),
        ("What time is it in the west coast?", "It's 6:00 AM in the West Coast."),
        ("What time is it in Portland, Maine?", "It's 9:00 AM in Portland, Maine."),
        ("How many days until the last day of March?", "That's 129 days."),
        ("How many days until November 22?", "That's no time at all."),
    ],
)  # fmt: skip
def test_a_question_that_is_said_in_full_is_a_program(said: str, spoken: str) -> None:
    program = closed_form(said)
    assert program is not None
    ((value, unit),) = run_program(program, NOW, {}).answers
    assert answer(value, unit, NOW) == spoken


@pytest.mark.parametrize(
    "said",
    [
        "", "5", "What is 5?", "What's seven plus?", "How many people live in 5 houses?", "I ate 3 times 4 cookies.",
        "My number is 5 plus 5.", "What is 619-332-8075?", "What is 24/7?", "What's 9/11?",
        "It's open 24/7.", "Set a timer for five minutes.",
        "What time is it in Atlantis?", "What's the date in an hour?", "How many days until my birthday?",
        "How long is it until 99999999 days?", "How many stars are in the sky?", "Convert dollars to euros.",
        "What time is it in Tokyo and in Lima?", "What's 5 plus 5, and who won the match?", "1 + " * 300 + "1",
        "What time is it in Lucknow?", "What time is it in Paris, Texas?", "What time is it in Georgia?",
        "How many kilojoules in 500 calories?", "What's an hour in a day?",
    ],
)  # fmt: skip
def test_anything_else_is_left_to_a_language_model(said: str) -> None:
    assert closed_form(said) is None


@pytest.mark.parametrize(
    "said",
    [
        "Divide 20 plus 10 by 5.", "Divide 100 minus 20 by 4.", "Multiply 3 plus 4 by 2.", "Divide 10 and 2 by 5.",
        "Multiply 5 and 6 by 7.", "What's 10 divided by half of 10?", "What's 100 divided by twice 5?",
        "What's 10 divided by 20% of 50?", "What's 3 to the power of twice 2?", "What's half of 10 plus 20?",
        "What's 20 percent of 50 plus 30?", "What's twice 3 squared?", "What's the square root of 9 plus 16?",
        "What's the square root of 16 times 4?", "What's minus five squared?", "2 to the power of 3 squared",
        "What's 100 over 5 percent of 40?", "What's a million and a half times 2?", "What's 5 dollars plus 3 euros?",
        "What's $10 divided by $5?",
    ],
)  # fmt: skip
def test_a_sum_that_may_be_meant_in_two_ways_is_left_to_a_language_model(said: str) -> None:
    assert closed_form(said) is None


@pytest.mark.parametrize(
    "day", ["yesterday", "the day before yesterday", "last Friday", "past Monday", "two weeks ago", "today", "tomorrow"]
)
def test_days_until_one_that_is_over_or_has_almost_begun_are_not_counted(day: str) -> None:
    assert closed_form(f"How long is it until {day}?") is None


@pytest.mark.parametrize(
    ("said", "program"),
    [
        ("How do you spell strengthen?", 'answer = "S, T, R, E, N, G, T, H, E, N"'),
        ("How do you spell Lucknow, please?", 'answer = "L, U, C, K, N, O, W"'),
        ("Spell unequal for me again.", 'answer = "U, N, E, Q, U, A, L"'),
        ("Spell remake.", 'answer = "R, E, M, A, K, E"'),
        ("Spell 'cat'.", None),
        ("How do I spell check?", None),
        ("How can I spell better?", None),
        ("How do you spell now?", None),
        ("How do you spell necessary?", 'answer = "N, E, C, E, S, S, A, R, Y"'),
        ("Please spell the word cat for me.", 'answer = "C, A, T"'),
        ("What's the spelling of can't?", 'answer = "C, A, N, apostrophe, T"'),
        ("How do you spell it?", None),
        ("How do you spell your name?", None),
        ("Cast a spell on me.", None),
        ("How do I spell check a document?", None),
    ],
)
def test_a_word_is_spelled_without_the_model(said: str, program: str | None) -> None:
    assert closed_form(said) == program
