"""The prompt with which a language model works out an answer: examples of how messages are classified and solved. All
samples of all requests begin with it, so it is read once."""

from __future__ import annotations

from typing import Literal, get_args

from agent.program.grammar import computation_grammar
from chat.types import Lark, lark_string

Kind = Literal["number", "option", "text"]
"""What the answer to a message is: a number or a time, one of a few things such as yes or no, or a text."""

Method = Literal["notes", "program"]

EXAMPLES = """Say what the answer to a message is: a number (or a time), an option (yes or no, or one of a few things \
that are named), or a text. Work a number or an option out. Notes go through all facts step by step, with each \
calculation written out. A program assigns each fact and each step to a name that says what it is.

Message: Ann has three boxes with 12 pencils each. She gives half of her pencils to Tom and loses 4. How many are left?
number
Program:
boxes = 3
pencils_per_box = 12
pencils = boxes * pencils_per_box
given_to_tom = pencils / 2
lost = 4
answer = pencils - given_to_tom - lost

Message: Write a short letter to my 3 neighbors about the party on the 12th.
text

Message: A jacket costs $80 and is sold at a 25% discount. Sales tax is 10%. How much change does Ben get for $100?
number
Notes:
The discount is 80 * 25 / 100 = 20 dollars.
The jacket then costs 80 - 20 = 60 dollars.
The tax on that is 60 * 10 / 100 = 6 dollars, so Ben pays 60 + 6 = 66 dollars.
His change is 100 - 66 = 34 dollars.
Answer: 34

Message: Who was Albert Einstein?
text

Message: Lea has 12 coins, Max has 3 more than half of that. Who has more coins?
option
Notes:
Lea has 12 coins. Half of that is 12 / 2 = 6.
Max has 6 + 3 = 9 coins.
12 is more than 9, so Lea has more.
Answer: Lea

Message: Give me two ideas for dinner.
text

Message: Lea is twice as old as Max, who is 3 years older than Ida. In 5 years Ida will be 12. How old is Lea?
number
Notes:
In 5 years Ida will be 12, so now she is 12 - 5 = 7.
Max is 3 years older than Ida, so he is 7 + 3 = 10.
Lea is twice as old as Max, so she is 10 * 2 = 20.
Answer: 20

Message: Explain in 100 words what an interest rate is.
text

Message: Tom runs 6 km on each of 4 days at 12 km an hour, and rides 90 km on Sunday at 15 km an hour. How many hours \
does he spend on both in 3 weeks?
number
Notes:
He runs 6 * 4 = 24 km a week, which takes 24 / 12 = 2 hours.
The ride takes 90 / 15 = 6 hours a week.
Together that is 2 + 6 = 8 hours a week.
In 3 weeks that is 8 * 3 = 24 hours.
Answer: 24

Message: Write a poem about rain.
text

Message: A film starts at 8:50 pm and takes 105 minutes. When does it end?
number
Program:
start = time("8:50 pm")
answer = start + minutes(105)"""

KINDS = Lark("start: " + " | ".join(map(lark_string, get_args(Kind))))
"""The grammar of the word that says what an answer is."""

ANSWER = "Answer: "
"""Begins the last line of notes."""

_LAST_LINES = {
    "number": r"-?[0-9][0-9,]*(\.[0-9]+)?|[0-9][0-9]?:[0-9][0-9]( ?[AaPp][Mm])?",
    "option": r"[^\n]+",
}


def beginning(method: Method, kind: Kind) -> str:
    """What a sample begins with: all of one method and kind have read the same up to there."""
    return f"{kind}\n{method.capitalize()}:\n"


def sample_grammar(method: Method, kind: Kind, begin: str) -> Lark:
    """The grammar of a sample.

    Args:
        begin: what the sample begins with.
    """
    if method == "program":
        return computation_grammar(begin)
    return Lark(
        f'start: {lark_string(begin)} REST? LINE* "{ANSWER}" /{_LAST_LINES[kind]}/\n'
        f"REST: /[^\\n]*\\n/\n"
        f"LINE: /[^\\n]+\\n/ & ~/{ANSWER}[^\\n]*\\n/\n"
    )
