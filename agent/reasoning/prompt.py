"""What a language model reads when it works out an answer, and the grammars of what it writes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

from agent.program.grammar import choice_grammar, computation_grammar
from chat.types import Lark, Message, lark_string

Kind = Literal["number", "choice", "text"]
"""What the answer to a message is: a number or a time, one of a few things such as yes or no, or a text."""

ReasoningEffort = Literal["low", "medium", "high"]

Method = Literal["program", "steps"]
"""How a sample comes to its answer: a program is run, or steps are reasoned through in the model's own style."""

EXAMPLES = """Say what the answer to a message is: a number (or a time), an option (yes or no, or one of a few things \
that are named), or a text. For a number, write a program that works it out. It assigns each fact and each step to a \
name that says what it is.

Message: Ann has three boxes with 12 pencils each. She gives half of her pencils to Tom and loses 4. How many are left?
number
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
price = 80
discount = price * 25 / 100
reduced_price = price - discount
tax = reduced_price * 10 / 100
paid = 100
answer = paid - reduced_price - tax

Message: Who was Albert Einstein?
text

Message: Lea has 12 coins, Max has 3 more than half of that. Who has more coins?
option

Message: Give me two ideas for dinner.
text

Message: Lea is twice as old as Max, who is 3 years older than Ida. In 5 years Ida will be 12. How old is Lea?
number
ida = 12 - 5
max_age = ida + 3
lea = max_age * 2
answer = lea

Message: Explain in 100 words what an interest rate is.
text

Message: Does a bus with 40 seats have room for 3 classes of 14 children?
option

Message: Tom runs 6 km on each of 4 days at 12 km an hour, and rides 90 km on Sunday at 15 km an hour. How many hours \
does he spend on both in 3 weeks?
number
km_run_per_week = 6 * 4
hours_of_running = km_run_per_week / 12
hours_of_riding = 90 / 15
hours_per_week = hours_of_running + hours_of_riding
weeks = 3
answer = hours_per_week * weeks

Message: Write a poem about rain.
text

Message: A film starts at 8:50 pm and takes 105 minutes. When does it end?
number
start = time("8:50 pm")
answer = start + minutes(105)

Message: What do you think of jazz?
text"""
"""What programs are written after. Without the examples of other kinds, fewer were right (48 of 124, not 58)."""

CHOICE_EXAMPLES = """Say what the answer to a message is: a choice that can be worked out from what the message says \
(yes or no, or one of the things that it names), or a fact that one has to know. For a choice, write a program that \
works it out. It assigns each fact and each step to a name that says what it is.

Message: Lea has 12 coins, Max has 3 more than half of that. Who has more coins?
choice
lea = 12
max_coins = lea / 2 + 3
answer = "Lea" if lea > max_coins else "Max"

Message: True or false: spiders are insects.
fact

Message: Does a bus with 40 seats have room for 3 classes of 14 children?
choice
seats = 40
children = 3 * 14
answer = seats >= children

Message: Is Lisbon the capital of Spain?
fact

Message: A drone flies 20 m north, 5 m east, 12 m south, 5 m west and 8 m south. Is it above the place where it began?
choice
north(20)
east(5)
south(12)
west(5)
south(8)
answer = distance() == 0

Message: Who is older, the Pope or the King of Spain?
fact

Message: Tom walks 3 blocks, turns left, walks 5 blocks, turns around and walks 2 blocks. Has he come back?
choice
forward(3)
turn_left()
forward(5)
turn_around()
forward(2)
answer = distance() == 0

Message: Ida looks at the sea all the time, and takes 4 steps back, 2 to the left, 4 toward the sea and 2 to the \
right. Does she stand where she stood before?
choice
backward(4)
left(2)
forward(4)
right(2)
answer = distance() == 0

Message: Which is bigger, the sun or the moon?
fact

Message: The train leaves at 9:40 and takes 95 minutes. The meeting begins at 11. Are we late?
choice
arrival = time("9:40") + minutes(95)
meeting = time("11")
answer = arrival > meeting

Message: Was Ada Lovelace a mathematician or a painter?
fact

Message: A pack of 6 costs $4.50, a pack of 10 costs $6.90. Which is cheaper for each piece: 6 or 10?
choice
each_of_6 = 4.50 / 6
each_of_10 = 6.90 / 10
answer = "6" if each_of_6 < each_of_10 else "10"

Message: Can a person who is allergic to nuts eat marzipan?
fact"""
"""What programs that make a choice are written after."""

_DECLINED = "fact"

KIND_EXAMPLES = """Say what kind of answer a message asks for: number (one number or time), choice (yes or no, true \
or false, or one of the things that the message names) or text (words, sentences, a list, code).

Message: Ann has three boxes with 12 pencils each. She gives half of them to Tom. How many are left?
number
Message: Write a short letter to my 3 neighbors about the party on the 12th.
text
Message: Is 51 a prime number?
choice
Message: How do I get a stain out of a shirt?
text
Message: Which is heavier, a pound of feathers or a kilo of iron?
choice
Message: A film starts at 8:50 pm and takes 105 minutes. When does it end?
number
Message: Who was Albert Einstein?
text
Message: Give me two ideas for dinner.
text
Message: Lea has 12 coins, Max has 3 more than half of that. Who has more coins?
choice
Message: hi, how are you?
text
Message: What is 15 percent of 80?
number
Message: Explain in 100 words what an interest rate is.
text
Message: Does a bus with 40 seats have room for 3 classes of 14 children?
choice
Message: Translate into German: "Where is the station?"
text
Message: How many days are there from March 3 to May 9?
number
Message: Name the 8 planets.
text
Message: True or false: spiders are insects.
choice
Message: What should I do when my phone does not charge?
text
Message: In how many ways can 4 people sit on a bench?
number
Message: Write a poem about rain.
text"""

KIND_BIAS: Mapping[Kind, float] = {"number": -1.0, "choice": -1.5, "text": 0.0}
"""Added to the log probability of each kind: the 1.5B says `number` and `choice` too often. Fitted to 48 messages."""

_MAX_KIND_CHARACTERS = 2000
"""Of a message whose kind is asked for: of a longer one, its first and last half as many."""

KINDS = Lark("start: " + " | ".join(map(lark_string, get_args(Kind))))
"""The grammar of the word that says what an answer is."""

_LIST_MARKS, _BARE_OPTIONS = " -*•().:", frozenset(["", "yes", "no", "true", "false", "options"])

_INSTRUCTS = frozenset(
    "answer reply respond end think explain choose give only please finish write output return use state say".split()
)
"""First words of a paragraph that says how to answer."""

_INSTRUCTION = "Think step by step. End with a line `Answer: ` and the {what} alone."


def kind_prompts(message: str) -> list[list[Message]]:
    """What is read to tell the kind of a message: the message, and before it what precedes its last paragraph, which
    often says no more than how to write the answer."""
    whole = message.strip()
    before, _, _ = whole.rpartition("\n\n")
    return [_kind_prompt(text) for text in (before, whole) if text]


def _kind_prompt(message: str) -> list[Message]:
    if len(message) > _MAX_KIND_CHARACTERS:
        half = _MAX_KIND_CHARACTERS // 2
        message = f"{message[:half]} … {message[-half:]}"
    return [Message("system", KIND_EXAMPLES), Message("user", f"Message: {message}")]


def prompt(method: Method, kind: Kind, messages: Sequence[Message]) -> list[Message]:
    """A conversation as samples of a method read it.

    For programs, the examples come first, and what the conversation says as system stands before its first message.
    """
    if method == "steps":
        *earlier, newest = messages
        what = "number or the time" if kind == "number" else "option"
        return [*earlier, replace(newest, content=f"{newest.content}\n\n{_INSTRUCTION.format(what=what)}")]
    given = "".join(f"{message.content}\n\n" for message in messages if message.role == "system")
    *before, newest = [message for message in messages if message.role != "system"]
    if kind == "choice":
        newest = replace(newest, content=f"Message: {_question(newest.content)}")
    first, *others = [*before, newest]
    examples = EXAMPLES if kind == "number" else CHOICE_EXAMPLES
    return [Message("system", examples), replace(first, content=given + first.content), *others]


def _question(message: str) -> str:
    """A message without what only says how to answer: a last paragraph after the question, and the options yes and no.
    Programs for a choice would begin with names such as `yes`, and assign what the model guesses."""
    before, _, last = message.strip().rpartition("\n\n")
    words = re.findall(r"\w+", last.lower())
    names_options = "or" in words and _BARE_OPTIONS.isdisjoint(words)
    only_says_how = bool(words) and words[0] in _INSTRUCTS and not names_options and not any(map(str.isdigit, last))
    lines = (before if "?" in before and only_says_how else message.strip()).split("\n")
    while len(lines) > 1 and lines[-1].strip(_LIST_MARKS).lower() in _BARE_OPTIONS:
        lines.pop()
    return "\n".join(lines)


def beginning(method: Method, kind: Kind) -> str:
    """What the samples of a method begin with; they may also say that no program makes the choice."""
    return f"{kind}\n" if method == "program" else ""


def sample_grammar(method: Method, kind: Kind, begin: str) -> Lark | None:
    """The grammar of a sample; None for any text.

    Args:
        begin: what the sample begins with.
    """
    if method == "program":
        return computation_grammar(begin) if kind == "number" else choice_grammar(begin, _DECLINED)
    return Lark(f"start: {lark_string(begin)} REST\nREST: /(.|\\n)*/\n") if begin else None
