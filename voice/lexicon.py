"""How words are said that a voice would say wrongly: names above all."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Mapping
from pathlib import Path

PHONEMES = re.compile(r"\[\[(.*?)\]\]")
"""Phonemes in place of a word, in IPA, in a text that a synthesizer gets."""

_MAX_ENTRIES = 10_000
_IPA_SIGNS = frozenset(" .|‖‿ˈˌːˑʰʲʷˠˤ˞")
_SIBILANTS, _VOICELESS = "szʃʒ", "ptkfθ"


class Lexicon:
    """Words, and how they are said.

    Args:
        entries: by the word, or several words. One with a capital letter is meant as it is written, others in any case.
            It is said like another spelling ("win"), or like phonemes in IPA ("/wɪn/").

    Raises:
        ValueError: an entry is empty, or its phonemes are none.
    """

    def __init__(self, entries: Mapping[str, str]) -> None:
        if len(entries) > _MAX_ENTRIES:
            raise ValueError(f"a lexicon has at most {_MAX_ENTRIES:,} words, and this one has {len(entries):,}")
        self._said = {word: _spelling(word, said) for word, said in entries.items()}
        words = sorted(self._said, key=len, reverse=True)
        each = (re.escape(word) if word != word.lower() else f"(?i:{re.escape(word)})" for word in words)
        self._words = re.compile(rf"(?<![\w'’])({'|'.join(each)})(?!\w)((?:['’]s\b)?)") if words else None

    @staticmethod
    def read(path: Path) -> Lexicon:
        """Read a TOML file with a line `word = "how it is said"` for each word.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is no such file.
        """
        try:
            entries = tomllib.loads(path.read_text(encoding="utf-8"))
            return Lexicon(entries)
        except ValueError as error:  # of TOML and of UTF-8, too
            raise ValueError(f"the lexicon {path} cannot be used: {error}") from None

    def apply(self, text: str) -> str:
        """What a synthesizer gets for a text: words replaced by their other spelling, or by phonemes (`PHONEMES`)."""
        text = text.replace("[[", "[")  # only the lexicon writes phonemes
        return text if self._words is None else self._words.sub(self._replace, text)

    def _replace(self, match: re.Match[str]) -> str:
        word, possessive = match.groups()
        said = self._said.get(word) or self._said[word.lower()]
        if not possessive or not said.startswith("[["):
            return said + possessive
        last = said[-3]
        ending = "ɪz" if last in _SIBILANTS else "s" if last in _VOICELESS else "z"
        return f"{said[:-2]}{ending}]]"


NO_LEXICON = Lexicon({})


def _spelling(word: str, said: object) -> str:
    if not isinstance(said, str) or not said.strip(" /") or not word.strip():
        raise ValueError(f'{word!r} needs a text that says how it is said, like "win" or "/wɪn/"')
    if not (said.startswith("/") and said.endswith("/")):
        return said.strip().replace("[[", "[")
    phonemes = said.strip("/ ")
    for sign in phonemes:
        if unicodedata.category(sign)[0] not in "LM" and sign not in _IPA_SIGNS:
            raise ValueError(f"{sign!r} in the phonemes of {word!r} is no sign of the International Phonetic Alphabet")
    return f"[[{phonemes}]]"
