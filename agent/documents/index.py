"""Finds the passages that a question is about: by meaning (vectors) and by words (full text), ranked together."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from agent.documents.library import FoundPassage, Library, Vectors
from agent.words.names import names_in

NUM_FOUND = 8
"""Passages that a search returns."""

_MAX_WORDS = 24
"""Words of a question that are looked up."""

_MAX_NAMES = 500

_WORDS_WEIGHT = 0.5
"""Weight of the words compared with the cosine."""

_STOP_WORDS = frozenset(
    "a about again all also am an and any anything are as ask at be because been before being but by can could did do "
    "does doing done don't for from get give go got had has have having hear hello hey hi how i i'd i'll i'm if in "
    "into is isn't it it's its just know let like look many may maybe me mean might mine more most much must my need "
    "no not now of ok okay on one or other our out over please say says she should so some something sorry such sure "
    "tell than thank thanks that that's the their them then there these they thing things this those to too up us very "
    "want was we well were what what's when where which while who who's whom whose why will with would yeah yes you "
    "your according document documents file files book text explain describe read".split()
)
"""Words that say nothing about what a question is about."""


@dataclass(frozen=True)
class Match:
    """A passage that was found.

    Attributes:
        cosine: of the question's vector and the nearest one of the passage.
        words: share of the question's words that it or its heading or title has, 0 to 1; rare words weigh more.
    """

    found: FoundPassage
    cosine: float
    words: float


def content_words(text: str) -> list[str]:
    """The words that say what a text is about, in order, each once."""
    words = re.findall(r"[^\W_]+(?:['’][^\W_]+)*", text.lower().replace("’", "'"))
    plain = (word.removesuffix("'s") for word in words if word not in _STOP_WORDS)
    return list(dict.fromkeys(word for word in plain if word not in _STOP_WORDS and (len(word) > 1 or word.isdigit())))


class DocumentIndex:
    """Searches folders of a library. For one thread.

    Args:
        folders: their names.
        embed: a question → [1, dimensions], of length 1.

    Attributes:
        mentioned: names in the documents, the most frequent first.
    """

    def __init__(self, library: Library, folders: Sequence[str], embed: Callable[[Sequence[str]], Vectors]) -> None:
        self._library, self._folders, self._embed = library, tuple(folders), embed
        self._revision: tuple[int, int] | None = None
        self.mentioned: list[str] = []
        self._refresh()

    @property
    def num_passages(self) -> int:
        """How many passages are searched."""
        return len(self._ids)

    def search(self, question: str) -> list[Match]:
        """The best matches of a question, the best first."""
        self._refresh()
        words = content_words(question)[:_MAX_WORDS]
        if not len(self._ids) or not words:
            return []
        cosines = np.maximum.reduceat(self._vectors @ self._embed([question])[0], self._starts)
        shares = self._shares(words)
        scores = cosines + _WORDS_WEIGHT * shares
        best = np.argpartition(-scores, min(NUM_FOUND, len(scores)) - 1)[:NUM_FOUND]
        ranked = best[np.argsort(-scores[best], kind="stable")]
        found = {int(self._ids[n]): (float(cosines[n]), float(shares[n])) for n in ranked}
        return [Match(each, *found[each.id]) for each in self._library.passages(list(found))]

    def _shares(self, words: Sequence[str]) -> Vectors:
        """How many of the words each passage has, weighted by how rare they are: [N], 0 to 1."""
        shares, total = np.zeros(len(self._ids), np.float32), 0.0
        for word in words:
            matching = np.array(self._library.matching(word), np.int64)
            positions = np.searchsorted(self._ids, matching)
            positions = positions[positions < len(self._ids)]
            positions = positions[np.isin(self._ids[positions], matching)]
            weight = math.log(1 + (len(self._ids) - len(positions) + 0.5) / (len(positions) + 0.5))
            shares[positions] += weight
            total += weight
        return np.asarray(shares / total, np.float32)

    def _refresh(self) -> None:
        """Read the vectors again if the library has changed."""
        if (revision := self._library.revision) != self._revision:
            self._ids, self._starts, self._vectors = self._library.vectors(self._folders)
            self.mentioned = names_in(self._library.texts(self._folders))[:_MAX_NAMES]
            self._revision = revision
