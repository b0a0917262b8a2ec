"""Names that a conversation knows, where the recognizer has written other words that sound like one of them.

Whisper has read few names of people, streets and products, and writes common words in their place ("Zemar" for
"Xiomara"). Words that sound like a known name have nearly its Metaphone code (L. Philips, Computer Language 7 (12),
1990); whether they are that name is then decided by the recognizer, which says how probable the audio is with either
(`Recognizer.transcribe`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from jellyfish import levenshtein_distance, metaphone

_MAX_NAMES = 200
_MAX_WORDS = 4
"""That are written in place of one name."""

_MAX_DISTANCE = 0.2
"""Between the codes: edits by the length of the longer one."""

_MAX_REPLACEMENTS = 4
"""For one transcript; each costs a forward pass of the recognizer's decoder."""

_NONE = (1.0, "")
_QUOTES = "\"'“”‘’«»()[]{}<>*_`"
_MARKS = ".,;:!?…" + _QUOTES


@dataclass(frozen=True)
class Replacement:
    """A name in place of the words from `start` to before `end`.

    Attributes:
        name: with the punctuation of these words.
        distance: between the codes, 0 to 1.
    """

    name: str
    start: int
    end: int
    distance: float

    def within(self, words: Sequence[str]) -> str:
        """The words, with the name."""
        return " ".join([*words[: self.start], self.name, *words[self.end :]])


class KnownNames:
    """Names to listen for.

    Args:
        names: the most important ones first.
        may_be_missed: whether the recognizer is likely to miss a name. The others are left out.
    """

    def __init__(self, names: Iterable[str] = (), may_be_missed: Callable[[str], bool] = lambda name: True) -> None:
        self._codes: dict[str, str] = {}
        for name in names:
            if len(self._codes) >= _MAX_NAMES:
                break
            if may_be_missed(name) and len(code := _code(name)) > 1:
                self._codes[name] = code

    def __len__(self) -> int:
        return len(self._codes)

    def replacements(self, transcript: str) -> list[Replacement]:
        """What sounds like a name in a transcript, the most similar first. A name that is written in it already is
        not looked for."""
        words = transcript.split()
        plain = [_plain(word) for word in words]
        spans: dict[str, tuple[int, int]] = {}  # by code
        for count in range(1, _MAX_WORDS + 1):
            for start in range(len(words) - count + 1):
                spans.setdefault(_code_of_all(plain[start : start + count]), (start, start + count))
        found = []
        for name, code in self._codes.items():
            distance, nearest = _nearest(code, spans)
            if distance <= _MAX_DISTANCE and name.lower() not in plain:
                start, end = spans[nearest]
                found.append(Replacement(_in_place(name, words[start:end]), start, end, distance))
        return sorted(found, key=lambda each: each.distance)[:_MAX_REPLACEMENTS]


NO_NAMES = KnownNames()


def _plain(word: str) -> str:
    return "".join(filter(str.isalnum, word.lower().removesuffix("'s").removesuffix("’s")))


def _in_place(name: str, words: Sequence[str]) -> str:
    """A name with the punctuation and the possessive of the words that it replaces."""
    first, last = words[0], words[-1].rstrip(_MARKS)
    opening = first[: len(first) - len(first.lstrip(_QUOTES))]
    possessive = "'s" if last.lower().endswith(("'s", "’s")) else ""
    return f"{opening}{name}{possessive}{words[-1][len(last) :]}"


@lru_cache(10_000)
def _code(word: str) -> str:
    return metaphone(word)


def _code_of_all(words: list[str]) -> str:
    """The code of words that are one name. A code has vowels only where a word begins."""
    first, *others = map(_code, words)
    return first + "".join(code.lstrip("AEIOU") for code in others)


def _nearest(code: str, others: Collection[str]) -> tuple[float, str]:
    """The most similar one of other codes, if one is similar enough, and its distance; otherwise 1 and nothing."""
    if code in others:
        return 0.0, code
    edits = int(_MAX_DISTANCE * (len(code) + 1))  # the longer one allows them
    near = (other for other in others if edits and abs(len(other) - len(code)) <= edits)
    return min(
        ((levenshtein_distance(other, code) / max(len(other), len(code)), other) for other in near), default=_NONE
    )
