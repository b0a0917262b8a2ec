"""Splits streaming text into clauses for synthesis: the first as early as it can sound natural, later ones at pauses.

The clauses joined together are exactly the text. `voice.spoken_text` has the words that are pronounced for one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from agent.words.english.number_words import SMALL, TENS
from voice.clause_pace import ClausePace
from voice.spoken_text import FENCE, speakable

_MIN_WORDS_BEFORE_COMMA = 6
"""A later clause ends at a comma only after at least this many words. Shorter ones make the voice sound breathless.
Here and below, each digit of a number counts as a word: it takes about as long to generate and to say."""

_MIN_LIMIT_WORDS, _MAX_WORDS = 3, 24
"""A clause is cut at a word limit even without punctuation. The limit lies between these two: at most twice the words
so far plus two, because those words play while the next ones are generated and synthesized ("Sure," covers four), and
fewer where the pace is slow. The longest clause, eight seconds of speech, takes half a second to synthesize."""

_MIN_WORDS_BEFORE_NUMBER = 3
"""The first clause ends before a number in digits if it has this many words: "The moon is about" plays while
"238,857 miles" is generated, a token for each digit."""

_MAX_CHARACTERS = 240
"""A clause is cut here whatever it contains, such as a web address or a run of symbols."""

_MAX_DIGITS = 2 * _MAX_WORDS
"""A run of digits is cut after so many: each is a word, and a clause of 240 of them takes ten times as long to
synthesize as the longest sentence, while no other conversation gets audio."""

_WINDOW = _MAX_CHARACTERS + 40
"""Characters that are looked at for the end of the next clause, however many arrive at once."""

_FUNCTION_WORDS = frozenset(
    "a an the this that these those my your his her its our their some any no every of to in on at by for from "
    "with about into over and or but so because if when while as than is are was were be been am do does did has "
    "have had will would can could should may might must not very i you he she it we they there who which what "
    "how".split()
)
"""Words that belong to the next one: no clause ends after them without punctuation."""

_NUMERALS = frozenset((*SMALL[1:], *TENS, "hundred", "thousand", "million"))
"""Number words: the noun that they count follows."""

_ABBREVIATION = re.compile(r"(?:\b(?:mr|mrs|ms|dr|st|vs|etc|prof|e\.g|i\.e|a\.m|p\.m)|\b[A-Za-z])\.\Z", re.IGNORECASE)
_NO_END = re.compile(rf"{_ABBREVIATION.pattern}|^\s*\d{{1,2}}\.\Z", re.IGNORECASE)
"""A point that ends no sentence: of an abbreviation, or of a number before an item of a list."""
_STRONG_PUNCTUATION = re.compile(r"[.!?…]+[\"')\]]*(?=\s)|\n+")
_WEAK_PUNCTUATION = re.compile(r"[,;:—–][\"')\]]*(?=\s)|(?=\s\()")
_WORD = re.compile(r"\S+(?=\s)")
_OPEN = re.compile(
    r"(?<!`)`[^`\n]{1,60}$|!?\[[^\]\n.!?]{0,60}$|\]\([^)\n]{0,200}$|<[a-z/!|][^<>\n.!?]{0,60}$|"
    r"(?<!\$)\$[A-Za-z\\][^$\n.!?]{0,40}$",
    re.IGNORECASE,
)
"""Markup that goes on: a clause that ended in it could not be read without."""
_NUMBER_NEXT = re.compile(r"\S(?=\s+[$€£]?\d)")


@dataclass(frozen=True)
class Clause:
    """A part of a response that is spoken in one breath.

    Attributes:
        text: as written, including spaces.
        ends_sentence: whether the voice pauses after it.
        begins_in_code: whether the text before it ends within code, which is not spoken.
        begins_sentence: whether it is the first one, or the one before it ends a sentence.
    """

    text: str
    ends_sentence: bool
    begins_in_code: bool = False
    begins_sentence: bool = True

    def spoken(self, *, english: bool = True) -> str:
        """The words to pronounce, as `speakable` has them."""
        return self._in_english if english else self._read(english=False)

    @cached_property
    def _in_english(self) -> str:
        return self._read(english=True)

    def _read(self, *, english: bool) -> str:
        parts = FENCE.split(self.text)[self.begins_in_code :: 2]
        may_begin_item = self.begins_sentence or _begins_line(self.text)
        return speakable("\n".join(parts), english=english, may_begin_item=may_begin_item)

    @property
    def num_words(self) -> int:
        """Number of words to pronounce."""
        return len(self.spoken().split())


@dataclass
class ClauseSplitter:
    """Splits one response.

    Args:
        pace: how fast clauses are prepared where this one is spoken.
    """

    pace: ClausePace = field(default_factory=ClausePace)
    _text: str = ""
    _num_words: int = 0
    """Words in the clauses so far."""
    _in_code: bool = False
    _at_sentence: bool = True
    """Whether a sentence begins with the next clause."""

    def push(self, text: str) -> list[Clause]:
        """Append committed text; returns the clauses that it completes."""
        self._text += text
        clauses = []
        while (cut := self._cut()) is not None:
            clauses.append(self._take(cut))
        return clauses

    def peek(self, draft: str, ends: Sequence[int], confidence: Sequence[float]) -> tuple[Clause | None, float]:
        """The next clause if `draft` were committed, and the probability that all its tokens will be.

        Args:
            ends: where the draft's tokens end.
            confidence: probability of each, provided that those before it are right.
        """
        splitter = replace(self, _text=self._text + draft)
        cut = splitter._cut()
        if cut is None:
            return None, 0.0
        drafted = cut - len(self._text)
        chances = (chance for start, chance in zip((0, *ends), confidence, strict=False) if start < drafted)
        return splitter._take(cut), math.prod(chances)

    def flush(self) -> list[Clause]:
        """The remaining text, at the end of the response."""
        return [self._take(len(self._text))] if self._text else []

    def _take(self, cut: int) -> Clause:
        text, self._text = self._text[:cut], self._text[cut:]
        written = text.rstrip()
        ends_line = "\n" in text[len(written) :]
        ends_sentence = ends_line or written.rstrip("\"')]*_").endswith((".", "!", "?", "…", ":"))
        clause = Clause(text, ends_sentence, self._in_code, self._at_sentence)
        self._at_sentence = ends_sentence
        self._in_code ^= bool(len(FENCE.findall(text)) % 2)
        self._num_words += clause.num_words
        return clause

    def _cut(self) -> int | None:
        """Where the next clause ends, or None if it is not complete. A punctuation mark counts only once the next
        character is known: `3.` may become `3.5`."""
        start = len(self._text) - len(self._text.lstrip())
        text = self._text[: start + _WINDOW]
        strong = _STRONG_PUNCTUATION.finditer(text, start)
        no_end = _NO_END if self._at_sentence or _begins_line(text) else _ABBREVIATION
        cuts = [m.end() for m in strong if not no_end.search(text[: m.end()])][:1]
        min_words = _MIN_WORDS_BEFORE_COMMA if self._num_words else 1
        cuts += [m.end() for m in _WEAK_PUNCTUATION.finditer(text) if _num_words(text[: m.end()]) >= min_words][:1]
        if not self._num_words:
            cuts += [
                m.end() for m in _NUMBER_NEXT.finditer(text) if _num_words(text[: m.end()]) >= _MIN_WORDS_BEFORE_NUMBER
            ][:1]
        limit = max(_MIN_LIMIT_WORDS, min(self.pace.growth * (self._num_words + 1), _MAX_WORDS))
        num_words = 0
        for word in _WORD.finditer(text):
            num_words += _num_words(word.group())
            if num_words >= _MAX_WORDS or (num_words >= limit and _may_end_a_clause(word.group())):
                cuts.append(word.end())
                break
        longest = _MAX_CHARACTERS if start < _MAX_CHARACTERS else start + _MAX_CHARACTERS
        digits = [place for place, character in enumerate(text) if character.isnumeric()]
        if len(digits) > _MAX_DIGITS:
            longest = min(longest, digits[_MAX_DIGITS])
        if len(text) > longest:
            cuts.append(longest)
        usable = [cut for cut in cuts if text[:cut].strip() and (cut >= longest or not _OPEN.search(text[:cut]))]
        return min(usable, default=None)


def _begins_line(text: str) -> bool:
    """Whether a text begins with a line break."""
    return "\n" in text[: len(text) - len(text.lstrip())]


def _num_words(text: str) -> int:
    """Number of words, in which each digit counts as one."""
    return sum(max(1, sum(map(str.isdigit, word))) for word in text.split())


def _may_end_a_clause(word: str) -> bool:
    """Whether the next word does not belong to this one."""
    plain = re.sub(r"[^\w']", "", word.lower())
    return not (plain in _FUNCTION_WORDS or plain in _NUMERALS or plain.isdigit() or _ABBREVIATION.search(word))
