"""Everyday spoken sentences made from templates (spoken.toml), with every place marked where a turn could end: what an
ending classifier learns from beside the base model's own texts.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

_TEMPLATES = Path(__file__).with_name("spoken.toml")

Labelled = list[tuple[str, bool | None]]
"""Words, and whether a turn that ends behind each is complete; None where nobody could tell."""

_FILLED = 9
"""Times that a template is used; one without slots a third as often."""

_LONG = 4
"""Words of a sentence in which people hesitate."""

_FILLERS = ("um", "uh", "er", "um", "uh", "hmm", "you know", "i mean")
_OPENERS = ("hey", "okay", "um", "so", "well", "hi", "excuse me", "and", "oh", "alright", "please")
_CLOSERS = ("please", "thanks", "thank you", "right now", "if you can", "then")

_GOING_ON = (
    "and", "but", "and then", "so", "because", "or", "and also", "um", "uh", "but i", "and the", "or maybe", "which",
    "if", "when", "and second", "and second of all", "and um", "so i", "because i", "and i", "but the",
    "and what", "and maybe", "except", "unless", "although",
)  # fmt: skip

_SLOT = re.compile(r"\{(\w+)(!?)\}")


def spoken(draw: random.Random) -> Iterator[tuple[str, Labelled]]:
    """(where a sentence comes from, the sentence): those of one template are too alike to be told apart."""
    loaded = tomllib.loads(_TEMPLATES.read_text(encoding="utf-8"))
    slots = {name: " ".join(words.split()).split("; ") for name, words in loaded["slots"].items()}
    for kind, templates in loaded["templates"].items():
        for template in templates.strip().splitlines():
            for _ in range(_FILLED if "{" in template else _FILLED // 3):
                said = _filled(template, slots, draw)
                if kind == "unfinished":
                    said[-1] = (said[-1][0], False)
                    yield template, said
                else:
                    yield template, _going_on(_hesitant(_dressed(said, draw), draw), draw)
    for dictate in (_phone, _code, _spelled, _address):
        for _ in range(_FILLED * 10):
            opening, words = dictate(draw)
            yield f"{dictate.__name__} {opening}", _whole(opening.split(), words)


def _filled(template: str, slots: dict[str, list[str]], draw: random.Random) -> Labelled:
    def word(match: re.Match[str]) -> str:
        chosen = draw.choice(slots[match[1]])
        return chosen.replace("|", "").replace("~", "") if match[2] else chosen

    marks = {"|": True, "~": None}
    said: Labelled = [(part.rstrip("|~"), marks.get(part[-1], False)) for part in _SLOT.sub(word, template).split()]
    return [*said[:-1], (said[-1][0], True)]


def _dressed(said: Labelled, draw: random.Random) -> Labelled:
    """With what people say before and after."""
    if draw.random() < 0.2:
        said = [*_begun(_OPENERS, draw), *said]
    if draw.random() < 0.1:
        closer = draw.choice(_CLOSERS).split()
        said = [*said, *((word, None) for word in closer[:-1]), (closer[-1], True)]
    return said


def _hesitant(said: Labelled, draw: random.Random) -> Labelled:
    """With a hesitation somewhere inside, after which more was to come."""
    if len(said) < _LONG or draw.random() > 0.25:
        return said
    at = draw.randrange(1, len(said))
    return [*said[:at], *_begun(_FILLERS, draw), *said[at:]]


def _going_on(said: Labelled, draw: random.Random) -> Labelled:
    """With the beginning of what is to follow."""
    return [*said, *_begun(_GOING_ON, draw)] if draw.random() < 0.25 else said


def _begun(phrases: tuple[str, ...], draw: random.Random) -> Labelled:
    return [(word, False) for word in draw.choice(phrases).split()]


def _whole(opening: list[str], words: list[str]) -> Labelled:
    """Complete at its end; where seven of ten digits were said, nobody can tell."""
    said: Labelled = [(word, False) for word in (*opening, *words)]
    if len(words) == 10:
        said[-4] = (said[-4][0], None)
    return [*said[:-1], (words[-1], True)]


_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_NUMBERS = ("my number is", "my phone number is", "the number is", "you can reach me at", "call me at", "")
_CODES = ("my account number is", "the code is", "my customer number is", "the reference number is")
_SPELLINGS = ("my name is spelled", "it's spelled", "that's spelled", "you spell it")
_NAMES = ("smith", "meyer", "jonas", "garcia", "novak", "walker", "lopez", "keller", "brandt", "quinn")
_ADDRESSES = ("my address is", "the address is", "i live at", "send it to")
_STREETS = ("main street", "oak avenue", "park road", "church lane", "baker street", "mill road")


def _spoken_digits(count: int, draw: random.Random) -> list[str]:
    digits = [draw.randrange(10) for _ in range(count)]
    zero, name = draw.choice(("zero", "oh")), draw.random() < 0.5
    return [str(n) if not name else _DIGITS[n] if n else zero for n in digits]


def _phone(draw: random.Random) -> tuple[str, list[str]]:
    """Digit by digit, or in groups, as transcribers write them."""
    digits = "".join(str(draw.randrange(10)) for _ in range(10))
    ways = (
        [digits[:3], digits[3:7]],
        [digits[:3], digits[3:6], digits[6:]],
        _spoken_digits(7, draw),
        _spoken_digits(10, draw),
        _spoken_digits(10, draw),
    )
    return draw.choice(_NUMBERS), draw.choice(ways)


def _code(draw: random.Random) -> tuple[str, list[str]]:
    return draw.choice(_CODES), _spoken_digits(8, draw)


def _spelled(draw: random.Random) -> tuple[str, list[str]]:
    return draw.choice(_SPELLINGS), list(draw.choice(_NAMES))


def _address(draw: random.Random) -> tuple[str, list[str]]:
    return draw.choice(_ADDRESSES), [str(draw.randrange(1, 300)), *draw.choice(_STREETS).split()]
