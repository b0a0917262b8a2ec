"""Which words of a text may be names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

_MIN_LETTERS = 4
"""Shorter names sound like too many words."""


def words_in(texts: Iterable[str]) -> Iterator[str]:
    """The words of texts that are long enough for names."""
    for text in texts:
        for word in text.replace("-", " ").replace("/", " ").replace("’", "'").split():
            plain = word.strip(".,;:!?…\"'“”‘«»()[]{}<>*_`").removesuffix("'s")
            if len(plain) >= _MIN_LETTERS and plain.isalpha():
                yield plain


def names_in(texts: Iterable[str]) -> list[str]:
    """The words that texts write with a capital letter and never without, the most frequent first."""
    counts = Counter(words_in(texts))
    return [word for word, _ in counts.most_common() if word.istitle() and word.lower() not in counts]
