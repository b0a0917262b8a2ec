"""The words of a spoken sum as tokens: numbers in digits, words, and "," for every pause. English."""

from __future__ import annotations

import re
from fractions import Fraction

from agent.matched_text import for_patterns
from agent.tools.when import digits_for_words

_SYMBOLS = tuple((re.compile(pattern), replacement) for pattern, replacement in (
    (r"[’`]", "'"), ("½", " 1/2"), ("¼", " 1/4"), ("¾", " 3/4"), ("⅓", " 1/3"), ("⅔", " 2/3"), (r"°", " degrees "),
    (r"(\d),(?=\d{3}\b)", r"\1"), (r"\$ ?(\d+(?:\.\d+)?)", r"\1 dollars"), (r"€ ?(\d+(?:\.\d+)?)", r"\1 euros"),
    (r"£ ?(\d+(?:\.\d+)?)", r"\1 sterling"), (r"(\d) ?€", r"\1 euros"), (r"%|\bper cent\b", " percent "),
    (r"([\d)])\s*[×x*]\s*(?=[\d(])", r"\1 times "),
    ("÷", " divided by "), (r"\+", " plus "), (r"√", " square root of "),
    (r"([\d)])\s+/\s+(?=[\d(])", r"\1 divided by "),
    (r"([\d)])\s+[-−–]\s+(?=[\d(])", r"\1 minus "), (r"\^", " to the power of "),
    (r"(\d+)'(\d+)\"?", r"\1 feet \2 inches "), (r"[-−–](?=\d)", " minus "), (r"[-–—]", " "),
))  # fmt: skip
"""What transcripts have in place of words."""

_HYPHENS = re.compile(r"(?<=\d)[-−–](?=\d)")
_GROUPS = re.compile(r"(?<!\d)\d+(?:[-−–]\d+){2,}")
_IS_SUM = re.compile(r"\?|\b(?:what|what's|how much|calculate|compute)\b|^[\d\s.,()+*/x×÷−–-]+$")
"""In what is asked like this, or has nothing but numbers, "15-7" is a subtraction. Elsewhere it is a range ("I work
9-5"), and three groups of digits are a number that somebody dictates."""

DENOMINATORS = {
    "half": 2, "halve": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8,
    "ninth": 9, "tenth": 10, "twelfth": 12, "twentieth": 20, "hundredth": 100,
}  # fmt: skip
_DENOMINATOR = rf"({'|'.join(DENOMINATORS)})s?"
PLURALS = {"people": "person", "children": "child", "feet": "foot", "men": "man", "women": "woman", "boxes": "box",
           "loaves": "loaf", "glasses": "glass", "classes": "class", "buses": "bus", "inches": "inch"}  # fmt: skip
"""Singulars that are not made by leaving out an s."""

_NUMBER = r"(\d+(?:\.\d+)?)"


def sum_tokens(said: str) -> list[str]:
    """The tokens of what the user said: `2.5`, `2/3`, `plus`, `what's`, `,`."""
    text = f" {for_patterns(said.lower())} "
    text = _GROUPS.sub(lambda match: _HYPHENS.sub(" , ", match[0]), text)
    text = text if _IS_SUM.search(text) else _HYPHENS.sub(" to ", text)
    for pattern, replacement in _SYMBOLS:
        text = pattern.sub(replacement, text)
    text = re.sub(r"\b(each|every|which) one\b", r"\1", text)
    text = re.sub(r"\bhalf a dozen\b", "6", re.sub(r"\ba dozen\b", "12", text))
    text = digits_for_words(text)
    text = re.sub(r"\b(\d+) dozen\b", lambda match: str(12 * int(match[1])), text)
    text = re.sub(r"\b(\d+) point (\d++(?: \d++)*+ ?)", lambda match: f"{match[1]}.{match[2].replace(' ', '')} ", text)
    text = re.sub(rf"(?<![/.])\b{_NUMBER} and (an?|\d+) {_DENOMINATOR}\b", _mixed, text)
    text = re.sub(
        rf"(?<![/.])\b(an?|\d+) {_DENOMINATOR}\b(?! (?:past|to|after|of (?:an?|the) hour)\b)", _fraction, text
    )
    text = re.sub(r"\b(\d+) (dollars?|euros?|bucks) (?:and )?([1-9]\d)\b(?: cents)?(?! percent)", r"\1.\3 \2", text)
    return [
        "," if token in ".?!;:,=" else token
        for token in re.findall(r"\d+/\d+|\d+(?:\.\d+)?|[a-z]+(?:'[a-z]+)?|[^\s\"']", text)
    ]


def _decimal(number: Fraction) -> str:
    return f"{float(number):.10g}"


def _mixed(match: re.Match[str]) -> str:
    count = int(match[2]) if match[2].isdigit() else 1
    return _decimal(Fraction(match[1]) + Fraction(count, DENOMINATORS[match[3]]))


def _fraction(match: re.Match[str]) -> str:
    return f"{match[1] if match[1].isdigit() else 1}/{DENOMINATORS[match[2]]}"


def has_new_words(question: str, story: str, known: frozenset[str]) -> bool:
    """Whether a question has words that neither the story before it has nor are known: then it asks for something else
    than the result of the story."""
    told = {_stem(word) for word in re.findall(r"[a-z']+", story)}
    return any(word not in known and _stem(word) not in told for word in re.findall(r"[a-z']+", question))


def _stem(word: str) -> str:
    word = PLURALS.get(word, word)
    return word[:4] if len(word) > 4 else word.removesuffix("s")


def is_question(said: str) -> bool:
    """Whether the user asked something, rather than told something."""
    return re.search(r"\?|(?i:^(?:what|what's|how|when|which|who|where|why)\b)", said) is not None


def numbers(text: str) -> list[str]:
    """The numbers among tokens that are joined by spaces."""
    return [token for token in text.split() if as_number(token) is not None]


def count_numbers(text: str) -> int:
    """How many there are."""
    return len(numbers(text))


def as_number(token: str) -> Fraction | None:
    """The number that a token is, if it is one."""
    try:
        return Fraction(token) if token[:1].isdigit() else None
    except (ValueError, ZeroDivisionError):
        return None
