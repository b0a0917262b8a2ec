"""Everyday spoken sentences made from templates, in which every position is labelled with whether the turn could end
there. A turn completion classifier is trained on them, in addition to the base model's own texts.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

_DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_PHRASES: dict[str, list[str]] = _DATA["phrases"]

LabelledWords = list[tuple[str, bool | None]]
"""Words, and whether a turn that ends after each word is complete; None if that cannot be told."""

_USES = 9
"""How often each template is used; one without slots is used a third as often."""

_MIN_HESITANT_WORDS = 4
"""Shorter sentences get no hesitation."""

_SLOT = re.compile(r"\{(\w+)(!?)\}")


def spoken_sentences(draw: random.Random) -> Iterator[tuple[str, LabelledWords]]:
    """Yield (origin, labelled sentence). Sentences of one origin are too similar to be split between training and test
    data."""
    slots = {name: " ".join(words.split()).split("; ") for name, words in _DATA["slots"].items()}
    for kind, templates in _DATA["templates"].items():
        for template in templates.strip().splitlines():
            for _ in range(_USES if "{" in template else _USES // 3):
                words = _fill(template, slots, draw)
                if kind == "unfinished":
                    words[-1] = (words[-1][0], False)
                    yield template, words
                else:
                    yield template, _add_continuation(_add_hesitation(_add_politeness(words, draw), draw), draw)
    for dictate in (_phone, _code, _spelled, _address):
        for _ in range(_USES * 10):
            opening, dictated = dictate(draw)
            yield f"{dictate.__name__} {opening}", _label_dictation(opening.split(), dictated)


def _fill(template: str, slots: dict[str, list[str]], draw: random.Random) -> LabelledWords:
    def fill_slot(match: re.Match[str]) -> str:
        value = draw.choice(slots[match[1]])
        return value.replace("|", "").replace("~", "") if match[2] else value

    labels = {"|": True, "~": None}
    parts = _SLOT.sub(fill_slot, template).split()
    words: LabelledWords = [(part.rstrip("|~"), labels.get(part[-1], False)) for part in parts]
    return [*words[:-1], (words[-1][0], True)]


def _add_politeness(words: LabelledWords, draw: random.Random) -> LabelledWords:
    """Sometimes add what people say before and after a sentence."""
    if draw.random() < 0.2:
        words = [*_incomplete(_PHRASES["openers"], draw), *words]
    if draw.random() < 0.1:
        closer = draw.choice(_PHRASES["closers"]).split()
        words = [*words, *((word, None) for word in closer[:-1]), (closer[-1], True)]
    return words


def _add_hesitation(words: LabelledWords, draw: random.Random) -> LabelledWords:
    """Sometimes add a hesitation inside the sentence, after which it continues."""
    if len(words) < _MIN_HESITANT_WORDS or draw.random() > 0.25:
        return words
    position = draw.randrange(1, len(words))
    return [*words[:position], *_incomplete(_PHRASES["fillers"], draw), *words[position:]]


def _add_continuation(words: LabelledWords, draw: random.Random) -> LabelledWords:
    """Sometimes add the beginning of a further clause."""
    return [*words, *_incomplete(_PHRASES["continuations"], draw)] if draw.random() < 0.25 else words


def _incomplete(phrases: Sequence[str], draw: random.Random) -> LabelledWords:
    return [(word, False) for word in draw.choice(phrases).split()]


def _label_dictation(opening: list[str], dictated: list[str]) -> LabelledWords:
    """Label a dictation as complete at its end. After seven of ten digits, nobody can tell."""
    words: LabelledWords = [(word, False) for word in (*opening, *dictated)]
    if len(dictated) == 10:
        words[-4] = (words[-4][0], None)
    return [*words[:-1], (dictated[-1], True)]


def _spoken_digits(count: int, draw: random.Random) -> list[str]:
    digits = [draw.randrange(10) for _ in range(count)]
    zero, as_words = draw.choice(("zero", "oh")), draw.random() < 0.5
    return [str(n) if not as_words else _PHRASES["digits"][n] if n else zero for n in digits]


def _phone(draw: random.Random) -> tuple[str, list[str]]:
    """Digit by digit, or in groups, as speech recognizers write them."""
    digits = "".join(str(draw.randrange(10)) for _ in range(10))
    variants = (
        [digits[:3], digits[3:7]],
        [digits[:3], digits[3:6], digits[6:]],
        _spoken_digits(7, draw),
        _spoken_digits(10, draw),
        _spoken_digits(10, draw),
    )
    return draw.choice(_PHRASES["numbers"]), draw.choice(variants)


def _code(draw: random.Random) -> tuple[str, list[str]]:
    return draw.choice(_PHRASES["codes"]), _spoken_digits(8, draw)


def _spelled(draw: random.Random) -> tuple[str, list[str]]:
    return draw.choice(_PHRASES["spellings"]), list(draw.choice(_PHRASES["names"]))


def _address(draw: random.Random) -> tuple[str, list[str]]:
    return draw.choice(_PHRASES["addresses"]), [str(draw.randrange(1, 300)), *draw.choice(_PHRASES["streets"]).split()]
