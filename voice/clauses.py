"""A stream of text in, speakable clauses out: the first as early as it can sound right, later ones at pauses.

The clauses joined together are the text, letter for letter; `speakable` says how one is read aloud.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_COMMA_WORDS = 6
"""Later clauses end at a comma only from this many words on; shorter ones make the voice sound breathless."""

_FEWEST_WORDS, _MOST_WORDS = 3, 24
"""A clause is cut here even without punctuation. In between the limit is twice the words before and two more, since
those are spoken while the next ones are thought and synthesized: "Sure," covers four. Eight seconds of speech, the
most, take half a second to synthesize."""

_LONGEST_LETTERS = 240
"""A clause is cut here whatever it is made of, a web address or a run of signs."""

_LEANING = frozenset(
    [
        "a",
        "an",
        "the",
        "this",
        "that",
        "these",
        "those",
        "my",
        "your",
        "his",
        "her",
        "its",
        "our",
        "their",
        "some",
        "any",
        "no",
        "every",
        "of",
        "to",
        "in",
        "on",
        "at",
        "by",
        "for",
        "from",
        "with",
        "about",
        "into",
        "over",
        "and",
        "or",
        "but",
        "so",
        "because",
        "if",
        "when",
        "while",
        "as",
        "than",
        "is",
        "are",
        "was",
        "were",
        "be",
        "been",
        "am",
        "do",
        "does",
        "did",
        "has",
        "have",
        "had",
        "will",
        "would",
        "can",
        "could",
        "should",
        "may",
        "might",
        "must",
        "not",
        "very",
        "i",
        "you",
        "he",
        "she",
        "it",
        "we",
        "they",
        "there",
        "who",
        "which",
        "what",
        "how",
    ]
)
"""Words that lean on the next one: no clause ends after them without punctuation."""

_NUMERALS = frozenset(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million".split()
)
"""What they count follows."""

_ABBREVIATION = re.compile(r"(?:\b(?:mr|mrs|ms|dr|st|vs|etc|prof|e\.g|i\.e|a\.m|p\.m)|\b[A-Za-z])\.$", re.IGNORECASE)
_STRONG = re.compile(r"[.!?…]+[\"')\]]*(?=\s)|\n+")
_WEAK = re.compile(r"[,;:—–][\"')\]]*(?=\s)")
_WORD = re.compile(r"\S+(?=\s)")


@dataclass(frozen=True)
class Clause:
    """A piece of an answer that is spoken in one breath.

    Attributes:
        text: as written, with its spaces.
        ends_sentence: whether the voice pauses behind it.
    """

    text: str
    ends_sentence: bool


@dataclass
class ClauseSplitter:
    """Splits one answer."""

    _text: str = ""
    _said: int = 0
    """Words."""

    def push(self, text: str) -> list[Clause]:
        """Take the next committed text; returns the clauses that it completes."""
        self._text += text
        clauses = []
        while (cut := self._cut()) is not None:
            clauses.append(self._take(cut))
        return clauses

    def peek(self, draft: str) -> Clause | None:
        """The next clause, if `draft` were committed."""
        likely = replace(self, _text=self._text + draft)
        cut = likely._cut()
        return None if cut is None else likely._take(cut)

    def flush(self) -> list[Clause]:
        """The rest, at the end of the answer."""
        return [self._take(len(self._text))] if self._text else []

    def _take(self, cut: int) -> Clause:
        text, self._text = self._text[:cut], self._text[cut:]
        self._said += len(speakable(text).split())
        return Clause(text, bool(re.search(r"[.!?…:\n][\"')\]]*\s*$", text)))

    def _cut(self) -> int | None:
        """Where the next clause ends, or None while that is open. A mark counts only once the letter behind it is
        there: `3.` may become `3.5`."""
        cuts = [m.end() for m in _STRONG.finditer(self._text) if not _ABBREVIATION.search(self._text[: m.end()])][:1]
        least = _COMMA_WORDS if self._said else 1
        cuts += [m.end() for m in _WEAK.finditer(self._text) if len(self._text[: m.end()].split()) >= least][:1]
        words = list(_WORD.finditer(self._text))
        longest = max(_FEWEST_WORDS, min(2 * self._said + 2, _MOST_WORDS))
        bare = [re.sub(r"[^\w']", "", word.group().lower()) for word in words]
        cuts += [
            word.end()
            for word, plain in zip(words[longest - 1 :], bare[longest - 1 :], strict=True)
            if not (plain in _LEANING or plain in _NUMERALS or plain.isdigit() or _ABBREVIATION.search(word.group()))
        ][:1]
        if len(words) >= _MOST_WORDS:
            cuts.append(words[_MOST_WORDS - 1].end())
        if len(self._text) > _LONGEST_LETTERS:
            cuts.append(_LONGEST_LETTERS)
        usable = [cut for cut in cuts if self._text[:cut].strip()]
        return min(usable, default=None)


_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_MARKUP = re.compile(r"[*_#`~|<>{}\\]+")
_BULLET = re.compile(r"^\s*(?:[-•+]|\d+[.)])\s+", re.MULTILINE)
_PICTURE = re.compile("[\U0001f000-\U0001faff\u2190-\u2bff\ufe0f\u200d]+")
_SAID = {
    "%": " percent",
    "&": " and ",
    "=": " equals ",
    "+": " plus ",
    "°C": " degrees Celsius",
    "°F": " degrees Fahrenheit",
}


def speakable(text: str) -> str:
    """How `text` is read aloud: markdown, links and pictures taken out, signs turned to words."""
    text = re.sub(r"([^\w\s.])\1{2,}", r"\1", text)
    text = _PICTURE.sub(" ", _BULLET.sub("", _LINK.sub(r"\1", text)))
    for sign, said in _SAID.items():
        text = text.replace(sign, said)
    text = " ".join(_MARKUP.sub(" ", text).split())
    text = re.sub(r"\s+([,.;:!?])", r"\1", text)
    return text if re.search(r"\w", text) else ""
