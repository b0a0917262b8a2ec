"""What a language model reads when it extracts the constraints of a message, and when it writes a text again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from agent.brevity import sentence_ends
from agent.reasoning.constraints import LIST_MARKERS
from chat.types import Message

_INSTRUCTION = (
    "Say what a sentence demands of the form of the text that it asks for: its length, what it contains or avoids, how "
    "it starts or ends, its letters. What the text is about is no demand: write none."
)

EXAMPLES = (
    ("Tell me about the history of Prague.", "none"),
    ("Describe your favourite season in under 60 words.", "words at most 59"),
    (
        'Don\'t use the words "cold" or "snow", and mention the word river at least twice.',
        'avoids "cold"\navoids "snow"\ncontains "river" at least 2',
    ),
    ("Write a product description for a kettle with 4 paragraphs separated by ***.", "paragraphs exactly 4"),
    ("There must not be any comma.", 'avoids ","'),
    ("Mark 3 or more parts like *this*.", "highlights at least 3"),
    ("Which exercises are good for my back, and how often should a beginner do them?", "none"),
    ("Give tips for an interview in exactly 5 bullet points, with no commas.", 'bullet points exactly 5\navoids ","'),
    ("The reference for the tenant needs a title in double angular brackets, as in <<title>>.", "title"),
    (
        "Leave at least 6 blanks in square brackets, e.g. [name], and add a postscript that starts with P.P.S.",
        'placeholders at least 6\ncontains "P.P.S"',
    ),
    ("Answer in English, and don't use a single capital letter.", "lower case"),
    ("My sister Anna turns 30 on the 12th of May and likes red wine.", "none"),
    (
        'Review the film "Heat" and finish with the words "Is that all?" and nothing after them.',
        'ends with "Is that all?"',
    ),
    ('The word "engine" may not occur.', 'avoids "engine"'),
    ("Put it between double quotation marks, and use 300 words or more.", "in quotation marks\nwords at least 300"),
    ("All letters must be capitals.", "upper case"),
    ("No other text than the JSON object is allowed.", "JSON"),
    (
        "The reply should have fewer than 7 sentences, with at least 4 words in all caps.",
        "sentences at most 6\ncapital words at least 4",
    ),
    ("The letter q should appear 5 or more times.", 'contains "q" at least 5'),
    ("Write a short poem about a bus driver who lost two umbrellas.", "none"),
    ("Give two different answers, with six asterisks between them: ******.", 'contains "******"'),
    (
        "Write to the harbour master with the keywords harbour and lantern, but without boat.",
        'contains "harbour"\ncontains "lantern"\navoids "boat"',
    ),
    ("It has 2 sections, marked with CHAPTER 1 and CHAPTER 2.", 'contains "CHAPTER 1"\ncontains "CHAPTER 2"'),
    ("Make it funny, in the style of a letter to a landlord.", "none"),
    ('Never write the letter "k", and use no more than 2 paragraphs.', 'avoids "k"\nparagraphs at most 2'),
    ('What does the sentence "He has 3 cats and 20 words to learn" mean?', "none"),
    ("Explain how a dam works, between 100 and 120 words.", "words at least 100\nwords at most 120"),
    ("Write it in lowercase.", "lower case"),
    ("It needs 3 or more hashtags, in English.", 'contains "#" at least 3'),
    ('The last sentence must be "See you in court."', 'ends with "See you in court."'),
    ("Fewer than 9 words may be in capitals.", "capital words at most 8"),
    ('The reply should not include the keywords "boat" and "sail".', 'avoids "boat"\navoids "sail"'),
    ("Emphasize at least 6 phrases with markdown, i.e. *emphasized phrase*.", "highlights at least 6"),
    ("Do not include any semicolons in it.", 'avoids ";"'),
    ("Write a song with less than 9 sentences about a harbour.", "sentences at most 8"),
)  # fmt: skip
"""Sentences, and what they demand."""

EXAMPLE_TURNS = (
    Message("system", _INSTRUCTION),
    *(Message(role, text) for pair in EXAMPLES for role, text in zip(("user", "assistant"), pair, strict=True)),
)

_MAX_SENTENCES, _MAX_CHARACTERS = 24, 400
"""Of a message, and of one sentence."""

_MIN_WORDS = 2

_REVISION = "That is not what I asked for yet:\n{problems}\nWrite the whole answer again so that it is, and no more."


@dataclass(frozen=True)
class Sentence:
    """A sentence of a message.

    Attributes:
        text: without the marker of a list.
        is_item: whether it stands in one.
    """

    text: str
    is_item: bool


def sentences(message: str) -> list[Sentence]:
    """The sentences of a message that may have constraints."""
    found = []
    for line in message.split("\n"):
        text = line.strip()
        is_item = text.startswith(LIST_MARKERS)
        text = text[2:] if is_item else text
        ends = [0, *sentence_ends(text, 0), len(text)]
        found += [Sentence(text[start:end].strip(), is_item) for start, end in pairwise(ends)]
    short = [one for one in found if len(one.text.split()) >= _MIN_WORDS and len(one.text) <= _MAX_CHARACTERS]
    return short[-_MAX_SENTENCES:]


def constraint_prompt(sentence: str) -> list[Message]:
    """What is read to extract the constraints of a sentence."""
    return [*EXAMPLE_TURNS, Message("user", sentence)]


def revision_prompt(messages: Sequence[Message], draft: str, problems: Sequence[str]) -> list[Message]:
    """A conversation as a text is written again that has these problems."""
    listed = "\n".join(f"- {problem}" for problem in problems)
    return [*messages, Message("assistant", draft), Message("user", _REVISION.format(problems=listed))]
