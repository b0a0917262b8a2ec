"""What the samples of a reasoner come to."""

from __future__ import annotations

import pytest

from agent.reasoning.answers import program_answer, steps_answer, vote
from agent.reasoning.prompt import Kind


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        ("number", "So it is 60 + 6 = 66.\n\n**Answer:** 34", "34"),
        ("number", "### Answer\n\\[ \\boxed{1,200} \\]", "1200"),
        ("number", "Answer: $34.50 (of 100)", "34.5"),
        ("number", "It ends at 11:15.\n**Answer: 11:15 AM**", "11:15 am"),
        ("number", "First 3, then 4, so he has 7 apples.", "7"),
        ("number", "I do not know.", ""),
        ("number", "Answer: 3/4", "0.75"),
        ("number", "Answer: \\(\\frac{1}{8}\\)", "0.125"),
        ("number", "Answer: 1 1/2 cups", "1.5"),
        ("number", "Answer: -1 1/2", "-1.5"),
        ("number", "Answer: 1/0", "1/0"),
        ("number", "Answer: 2 hours and 30 minutes.", "2 hours and 30 minutes"),
        ("number", "Answer: \u22125", "-5"),
        ("number", "Answer: 5 - 2 = 3", "3"),
        ("number", "Answer: 4 * (2 + 3)", "4 * (2 + 3"),
        ("number", "Answer: .5", "0.5"),
        ("number", "Answer: 10^6", "10^6"),
        ("number", "Answer: 25 m^2", "25"),
        ("number", "Answer: 5 million people", "5000000"),
        ("number", "Answer: 5 for each one", "5"),
        ("number", "Answer: 2 and a half", "2 and a half"),
        ("number", "Answer:\n\\[\n1{,}200\n\\]\nof them 12 are red", "1200"),
        ("number", "It is 7 * 13.\n\nAnswer: No", "no"),
        ("choice", "Lea has more.\n\n**Answer:** Lea.", "lea"),
        ("choice", "Answer:\n`yes`\nbecause", "yes"),
        ("choice", "So the answer is: Yes, you do.", "yes"),
        ("choice", "The answer is:\n\n\\[ \\boxed{\\text{No}} \\]", "no"),
        ("choice", "Answer: the island", "the island"),
        ("choice", "Lea has more.", ""),
        ("number", "Answer: 12 correct answers.", "12"),
        ("number", "The final answer is 12.\n\nI hope this answers your question.", "12"),
        ("choice", "Answer: Lea answered more questions", "lea answered more questions"),
        ("choice", "The answer is No.\n\nLet me know if you want this answer explained.", "no"),
        ("choice", "Answer: Israel", "israel"),
        ("choice", "Answer: **Yes**, because she has more", "yes"),
        ("choice", "Answer: Yes. Lea has more.", "yes"),
        ("choice", "Answer: **Lea**, with 9 coins", "lea"),
        ("choice", "Answer: St. Gallen", "st. gallen"),
        ("choice", "Answer: Option (B)", "option (b"),
        ("choice", "Answer: May 5, 2021", "may 5, 2021"),
        ("choice", "Answer: Paris, because it is larger", "paris"),
        ("choice", "Answer: No one", "no one"),
        ("choice", "Answer: No. 7 bus", "no. 7 bus"),
        ("choice", "Answer: True North", "true north"),
        ("choice", "Answer: No since 3 is less", "no"),
        ("number", "Answer: 2 hours 30 minutes", "2 hours 30 minutes"),
        ("number", "Answer: 2h 30m", "2h 30m"),
        ("number", "Answer: 5 feet 6 inches", "5 feet 6 inches"),
        ("number", "Answer: 12 of 20 people", "12"),
        ("number", "Answer: 2:3", "2:3"),
        ("number", "Answer: -$50", "-50"),
        ("number", "Answer: 5 pm", "5:00 pm"),
        ("number", "Answer: 0.00003", "0.00003"),
        ("number", f"Answer: {'9' * 400}.5", f"{'9' * 400}.5"),
    ],
)
def test_the_answer_is_found_in_any_markup(kind: Kind, text: str, found: str) -> None:
    assert steps_answer(text, kind) == found


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("count = 9\nanswer = count", ""),
        ("count = -9\nanswer = (count)", ""),
        ('answer = time("8:50 pm")', ""),
        ("is_insect = 1\nanswer = is_insect == 1", ""),
        ("answer = unknown * 2", ""),
        ("answer = 1 +", ""),
        ("seats = 40\nchildren = 3 * 14\nanswer = seats >= children", "no"),
        ("lea = 3\nmax_coins = 4\nanswer = lea > max_coins", "no"),
        ('cost = 4.50 / 6\nanswer = "$4.50" if cost < 1 else "(B)"', "4.50"),
        ('answer = weekday(date("march 3 2026"))', "tuesday"),
        ('answer = convert(26.2, "mile", "kilometer")', "42.16"),
        ("answer = 3 / 100000", "0.00003"),
        ('answer = time("9:00") + hours(10) > time("9:00")', "yes"),
        ('x = time("16:00")\nanswer = x >= time("9:00") and x + hours(1) < time("18:00")', "yes"),
        ('answer = time("11:00 pm") + minutes(95) > time("11:30 pm")', "yes"),
    ],
)
def test_a_program_that_computes_its_answer_has_a_vote(program: str, found: str) -> None:
    assert program_answer(program) == found


def test_what_means_the_same_is_one_vote() -> None:
    assert vote("true") == vote("yes") and vote("false") == vote("no") and vote("11:15 am") != vote("11:15 pm")
