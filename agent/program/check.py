"""Whether a program computes with what has been said: small models fill in a number that is missing, and take the
present for a day that is only supposed."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from fractions import Fraction

from agent.program.evaluator import Outcome
from agent.program.grammar import CLOCK_PATTERN
from agent.words.language import language

_ENGLISH = language("en")

_QUESTIONS = {
    "time": "For what time?",
    "hours": "For how long?",
    "minutes": "For how long?",
    "seconds": "For how long?",
}
"""What the user is asked if a call sets a time or a length that nobody named, by the parameter."""

MISSING = "I don't have all the numbers for that. Can you tell me more?"
"""What the user is told if something is computed with a number that nobody has said."""

_NAMED = {
    "half": "0.5 2 30", "halve": "2", "quarter": "0.25 4 15", "quarters": "0.25 4 3 45",
    "twice": "2", "double": "2", "doubled": "2", "both": "2", "couple": "2",
    "pair": "2", "pairs": "2", "triple": "3", "once": "1", "twins": "2", "dozen": "12", "score": "20",
    "percent": "100", "week": "7 24 168", "weeks": "7 24 168", "year": "12 52 365", "years": "12 52 365", "day": "24",
    "days": "24",
    "hour": "60 3600", "hours": "60 3600", "minute": "60", "minutes": "60", "average": "2", "gross": "144",
    "legs": "2 4", "cent": "100", "cents": "100", "kilo": "1000", "kilos": "1000", "metre": "100", "metres": "100 1000",
    "meter": "100", "meters": "100 1000", "kilometers": "1000", "litre": "1000", "liters": "1000", "gram": "1000",
    "halves": "0.5 2", "halved": "0.5 2", "back": "2", "millilitres": "1000", "milliliters": "1000", "grams": "1000",
    "kilograms": "1000", "centimetres": "100", "centimeters": "100", "february": "28 29", "remainder": "0",
    "square": "2", "squared": "2", "cubed": "3", "month": "12 30 31", "months": "12 30", "decade": "10",
    "century": "100", "fortnight": "14",
}  # fmt: skip
"""Numbers implied by words that are not numerals."""

_ALWAYS_KNOWN = (
    "0", "1", "100", "1000", "3600", "1.6", "1.609", "1.60934", "2.54", "0.4536", "0.453592", "2.2", "2.205", "2.20462",
    "3.785", "3.78541", "28.35", "0.3048", "0.9144", "1.8", "32", "0.6214", "0.621371",
)  # fmt: skip
"""Numbers that nobody needs to say: those of percentages and of units."""

_PRESENT = frozenset({"now", "today"})
"""Names of the present in programs."""

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def missing_number(outcome: Outcome, said: Sequence[str]) -> str:
    """What to ask the user, if a program has a number that nobody has said; empty otherwise.

    Args:
        said: what the user has said last, and before.
    """
    known = _known(said)
    for call in outcome.calls:
        for name, written in call.written.items():
            if name in _QUESTIONS and not _written_numbers(written) <= known:
                return _QUESTIONS[name]
    return "" if _written_numbers(outcome.computing) <= known else MISSING


def ignores_supposed_day(outcome: Outcome, said: str) -> bool:
    """Whether a program computes with the present although the user has said "If today is Tuesday, …"."""
    names = {node.id for node in ast.walk(ast.parse(outcome.computing)) if isinstance(node, ast.Name)}
    return not names.isdisjoint(_PRESENT) and _ENGLISH.supposes_another_day(said)


def _written_numbers(program: str) -> set[Fraction]:
    """The numbers and the times of day in a part of a program, without those in names and in other texts."""
    return _numbers(re.sub(r"\"[^\"]*\"|'[^']*'|\b[a-z_]\w*", _time_of_day, program))


def _time_of_day(match: re.Match[str]) -> str:
    return match[0] if re.fullmatch(CLOCK_PATTERN, match[0].strip("\"'")) else " "


def _known(said: Sequence[str]) -> set[Fraction]:
    """The numbers in what was said, and those that follow from them without thought."""
    found: set[Fraction] = set()
    named = {Fraction(number) for number in _ALWAYS_KNOWN}
    for text in said:
        text = re.sub(r"\b(?:noon|midday|midnight)\b", "12", text.lower())
        plain = re.sub(r"(?<=\d),(?=\d{3}\b)", "", _ENGLISH.in_digits(text).lower())
        found |= _numbers(plain)
        for parts in re.findall(r"\b(?:at|for|by|till|until) (\d\d?)\.?(\d\d)\b|\b(\d\d?)(\d\d) hours\b", plain):
            found |= {Fraction(part) for part in parts if part}  # "at 6.30", "1800 hours"
        years = re.findall(r"\b(1[5-9]|20) (?:oh )?(\d\d?)\b", plain)  # "nineteen eighty four"
        found |= {Fraction(100 * int(century) + int(year)) for century, year in years}
        for word in re.findall(r"[a-z]+", f"{plain} {text}"):  # "an hour and a half" is 1.5 hours in digits
            named |= {Fraction(number) for number in _NAMED.get(word, "").split()}
            if share := _ENGLISH.ORDINALS.get(word.removesuffix("s")):
                named |= {Fraction(share), Fraction(1, share)}
        named |= {century + Fraction(year) for year in re.findall(r"'(\d\d)\b", plain) for century in (1900, 2000)}
        named.add(Fraction(len(_NUMBER.findall(plain))))  # their average needs it
        if re.search(r"\b(?:to|till|before|quarter of)\b", plain):  # "twenty to seven" is 6:40
            found |= {Fraction(45)} if "quarter" in plain else set()
            found |= {60 - number for number in found if number < 60} | {number - 1 for number in found if number <= 12}
    halves = {number + half for number in found if number <= 24 for half in (-12, 12)}
    shares = {(base + number) / 100 for number in found for base in (0, 100)} | {1 - number / 100 for number in found}
    parts = {part for number in found for part in (number - number % 1, 60 * (number % 1), 60 * number) if number % 1}
    return found | named | halves | shares | parts


def _numbers(text: str) -> set[Fraction]:
    return {Fraction(number) for number in _NUMBER.findall(text)}
