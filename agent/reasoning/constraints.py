"""Constraints on the form of a text that a program can check: its length, words that it must have, how it begins.

A language model extracts them from a message, one per line, in the words of `CONSTRAINTS`:

    words at least 300
    contains "rain" at least 2
    avoids ","
"""

from __future__ import annotations

import json
import operator
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from agent.brevity import sentence_ends
from agent.words.english.number_words import SMALL, TENS
from chat.types import Lark

_MAX_LINES = 6
"""Constraints of one sentence."""

_MAX_TEXT = 120
"""Characters of a text that is demanded."""

NO_CONSTRAINT = "none"

_GRAMMAR = rf"""
some: line ("\n" line){{0,{_MAX_LINES - 1}}}
line: COUNTED " " RELATION " " NUMBER | "contains " TEXT (" " RELATION " " NUMBER)? | QUOTING " " TEXT | WHOLE
COUNTED: "words" | "sentences" | "paragraphs" | "bullet points" | "highlights" | "placeholders" | "capital words"
RELATION: "at least" | "at most" | "exactly"
NUMBER: /[1-9][0-9]{{0,3}}/
QUOTING: "avoids" | "starts with" | "ends with"
WHOLE: "lower case" | "upper case" | "JSON" | "title" | "in quotation marks"
TEXT: /"[^"\n]{{1,{_MAX_TEXT}}}"/
"""

CONSTRAINTS = Lark(f'start: "{NO_CONSTRAINT}" | some\n{_GRAMMAR}')
SOME_CONSTRAINTS = Lark(f"start: some\n{_GRAMMAR}")
"""The grammar of the constraints in a sentence, and the same if there are some."""

_SPELLED = frozenset((*SMALL, *TENS, "hundred", "once", "twice", "single"))

_CASES: Mapping[str, Callable[[str], str]] = {"lower case": str.lower, "upper case": str.upper}

_RELATIONS: Mapping[str, Callable[[int, int], bool]] = {
    "at least": operator.ge,
    "at most": operator.le,
    "exactly": operator.eq,
}

LIST_MARKERS = ("- ", "* ", "• ")
_SEPARATORS = ("***", "---")
"""Lines of their own that stand between two parts."""


@dataclass(frozen=True)
class Constraint:
    """One constraint.

    Attributes:
        kind: what is counted, or what the text must be, as `CONSTRAINTS` has it.
        text: what it must contain, avoid, start or end with.
        relation, number: how many; empty and 0 if nothing is counted.
    """

    kind: str
    text: str = ""
    relation: str = ""
    number: int = 0

    def met(self, text: str) -> bool:
        """Whether a text follows it."""
        if self.relation:
            return _RELATIONS[self.relation](self._count(text), self.number)
        return _CHECKS[self.kind](text.strip(), self.text)

    @property
    def may_be_topic(self) -> bool:
        """Whether it demands only words that the message may be about."""
        return self.kind == "contains" and not self.relation and self._has_words

    def may_come_from(self, sentence: str) -> bool:
        """Whether a sentence has the words and the number of this constraint: punctuation may be described there, and
        the number may be one more or less ("under 60 words") or spelled out."""
        words = sentence.casefold().split()
        parts = sentence.replace(",", "").translate(dict.fromkeys(map(ord, "-–—/~"), " ")).split()
        numbers = {int(digits) for part in parts if (digits := "".join(filter(str.isdecimal, part)))}
        if numbers and self.number and not numbers & {self.number - 1, self.number, self.number + 1}:
            return False
        if self.number and not numbers and not _SPELLED.intersection(word.strip(string.punctuation) for word in words):
            return False
        return not self._has_words or _has_word(sentence.casefold(), self.text.casefold())

    def problem(self, text: str) -> str:
        """What is wrong with a text that does not follow it, in a sentence."""
        if self.text and self.relation:
            return f'It has "{self.text}" {self._count(text)} times; {self.relation} {self.number} are asked for.'
        if self.relation:
            return f"It has {self._count(text)} {self.kind}; {self.relation} {self.number} are asked for."
        return _PROBLEMS[self.kind].format(text=self.text)

    @property
    def _has_words(self) -> bool:
        return any(map(str.isalnum, self.text))

    def _count(self, text: str) -> int:
        return text.casefold().count(self.text.casefold()) if self.text else _COUNTS[self.kind](text)


def read_constraints(written: str) -> list[Constraint]:
    """Constraints as a language model writes them."""
    return [_read_line(line) for line in written.split("\n") if line and line != NO_CONSTRAINT]


def compatible(constraints: Iterable[Constraint]) -> list[Constraint]:
    """Each constraint once, without those that no text can follow together with an earlier one."""
    found: list[Constraint] = []
    for one in constraints:
        if one not in found and not any(_exclude(one, other) or _exclude(other, one) for other in found):
            found.append(one)
    case = next((one.kind for one in found if one.kind in _CASES), None)
    return [one if case is None else replace(one, text=_CASES[case](one.text)) for one in found]


def text_grammar(constraints: Sequence[Constraint]) -> Lark | None:
    """The grammar of texts that follow the constraints on characters and on both ends; None if there are none."""
    excluded, start, end, quote = "", "", "", ""
    for one in constraints:
        match one.kind:
            case "avoids" if len(one.text) == 1:
                excluded += "".join(c for c in {one.text.lower(), one.text.upper()} if len(c) == 1)
            case "lower case":
                excluded += string.ascii_uppercase
            case "upper case":
                excluded += string.ascii_lowercase
            case "starts with":
                start = one.text
            case "ends with":
                end = one.text
            case "in quotation marks":
                quote = '"'
    if not excluded + start + end + quote:
        return None
    middle = f"[^{_escaped(excluded)}]" if excluded else "(.|\\n)"
    return Lark(f"start: TEXT\nTEXT: /{_escaped(quote + start)}{middle}*{_escaped(end + quote)}/\n")


def _read_line(line: str) -> Constraint:
    before, quote, rest = line.partition('"')
    text, _, after = rest.rpartition('"') if quote else ("", "", before)
    for relation in _RELATIONS:
        head, found, number = after.partition(f" {relation} ")
        if found:
            return Constraint(before.strip() if quote else head, text, relation, int(number))
    return Constraint(before.strip(), text)


def _exclude(one: Constraint, other: Constraint) -> bool:
    """Whether no text follows both; asked for both orders."""
    match one.kind, other.kind:
        case ("lower case", "upper case") | ("starts with", "starts with") | ("ends with", "ends with"):
            return True
        case "avoids", "contains" | "starts with" | "ends with":
            return not one.met(other.text)
    same = bool(one.relation and other.relation) and (one.kind, one.text) == (other.kind, other.text)
    return same and one.relation != "at most" and other.relation != "at least" and one.number > other.number


def _paragraphs(text: str) -> int:
    lines = ["" if line.strip() in _SEPARATORS else line.strip() for line in text.strip().split("\n")]
    return bool(lines[0]) + sum(not before and bool(line) for before, line in pairwise(lines))


def _highlights(text: str) -> int:
    """Parts of a line between asterisks, whether one, two or three."""
    found = 0
    for line in text.split("\n"):
        inner = [piece for piece in line.lstrip().removeprefix("* ").split("*")[1:-1] if piece]
        found += 0 if not inner or inner[0][0].isspace() else len(inner[::2])
    return found


def _capital_words(text: str) -> int:
    return sum(word.strip(".,;:!?\"'()*").isupper() for word in text.split())


_COUNTS: Mapping[str, Callable[[str], int]] = {
    "words": lambda text: len(text.split()),
    "sentences": lambda text: len(sentence_ends(text.strip() + "\n", 0)),
    "paragraphs": _paragraphs,
    "bullet points": lambda text: sum(line.lstrip().startswith(LIST_MARKERS) for line in text.split("\n")),
    "highlights": _highlights,
    "placeholders": lambda text: sum("]" in piece for piece in text.split("[")[1:]),
    "capital words": _capital_words,
}


def _is_json(text: str, _: str) -> bool:
    try:
        json.loads(text.removeprefix("```json").removeprefix("```").removesuffix("```"))
    except ValueError:
        return False
    return True


def _has_title(text: str, _: str) -> bool:
    _, opened, rest = text.partition("<<")
    return bool(opened) and bool(rest.partition(">>")[0].strip()) and ">>" in rest


_CHECKS: Mapping[str, Callable[[str, str], bool]] = {
    "contains": lambda text, part: part.casefold() in text.casefold(),
    "avoids": lambda text, part: not _occurs(text.casefold(), part.casefold()),
    "starts with": lambda text, part: text.lstrip('"').casefold().startswith(part.strip().casefold()),
    "ends with": lambda text, part: text.strip('"').casefold().endswith(part.strip().casefold()),
    "lower case": lambda text, _: text == text.lower(),
    "upper case": lambda text, _: text == text.upper(),
    "JSON": _is_json,
    "title": _has_title,
    "in quotation marks": lambda text, _: len(text) > 1 and text[0] == text[-1] == '"',
}

_PROBLEMS: Mapping[str, str] = {
    "contains": 'It does not contain "{text}".',
    "avoids": 'It contains "{text}", which it must not.',
    "starts with": 'It does not start with "{text}".',
    "ends with": 'It does not end with "{text}".',
    "lower case": "It has capital letters, and must not have any.",
    "upper case": "It has small letters, and must not have any.",
    "JSON": "It is not valid JSON, and nothing but JSON may be written.",
    "title": "It has no title in double angular brackets, such as <<The title>>.",
    "in quotation marks": "It is not written in double quotation marks as a whole.",
}


def _escaped(text: str) -> str:
    """Text within a regular expression of a grammar, also within brackets, where `\\<` would mean something else."""
    return "".join(f"\\{c}" if c in string.punctuation and c not in "<>" else c for c in text)


def _occurs(text: str, part: str) -> bool:
    """Whether a text has a word or a phrase; a single character may stand within a word."""
    return part in text if len(part) == 1 else _has_word(text, part)


def _has_word(text: str, part: str) -> bool:
    """Whether a text has a part, which is not a piece of a longer word: "art" is not in "start"."""
    start = text.find(part)
    while start >= 0:
        end = start + len(part)
        inner_start = part[:1].isalnum() and text[:start][-1:].isalnum()
        inner_end = part[-1:].isalnum() and text[end:][:1].isalnum()
        if not (inner_start or inner_end):
            return True
        start = text.find(part, start + 1)
    return False
