"""Few tools in the prompt: where a conversation has many, the language model reads the five that suit what was said.

Small models choose badly among many functions, and every function has to be read. Another selection changes the
beginning of the prompt, which is then read again, so the current one is kept while it has what is needed, and a change
starts on interim transcripts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from agent.tools.words import describing_stems, stems
from chat.types import Message, Tool

MAX_TOOLS = 10
"""Tools that a prompt may have before some are selected."""

NUM_SELECTED = 5

_NUM_RELEVANT = 2
"""The most relevant tools, which must be among those selected."""

_K1, _B = 1.2, 0.5
"""BM25's constants (Robertson and Zaragoza, 2009). Descriptions are short, so their length counts less than usual."""


class ToolRanking:
    """Ranks tools by the words that they share with a text (BM25)."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = tuple(tools)
        documents = self._documents = [describing_stems(tool) for tool in tools]
        mean = sum(document.total() for document in documents) / max(1, len(documents))
        self._lengths = [1 - _B + _B * document.total() / max(1.0, mean) for document in documents]
        found = Counter(word for document in documents for word in document)
        self._weights = {word: math.log(1 + (len(documents) - n + 0.5) / (n + 0.5)) for word, n in found.items()}

    def relevant(self, text: str) -> list[Tool]:
        """The tools that share a word with the text, the most relevant first."""
        words = set(stems(text))
        scores = [self._score(words, n) for n in range(len(self._tools))]
        ranked = sorted(range(len(self._tools)), key=lambda n: -scores[n])
        return [self._tools[n] for n in ranked if scores[n] > 0]

    def _score(self, words: set[str], n: int) -> float:
        document, length = self._documents[n], self._lengths[n]
        return sum(
            self._weights[word] * document[word] * (_K1 + 1) / (document[word] + _K1 * length)
            for word in words
            if word in document
        )


class ToolSelection:
    """The tools of one conversation's prompt."""

    def __init__(self) -> None:
        self._ranking = ToolRanking(())
        self._all: tuple[Tool, ...] = ()
        self._selected: tuple[Tool, ...] = ()

    def select(self, tools: Sequence[Tool], messages: Sequence[Message]) -> tuple[Tool, ...]:
        """The tools for a response to `messages`, in their order: all of them if they are few."""
        if len(tools) <= MAX_TOOLS:
            return tuple(tools)
        if tuple(tools) != self._all:
            self._all, self._ranking, self._selected = tuple(tools), ToolRanking(tools), tuple(tools[:NUM_SELECTED])
        text = next((message.content for message in reversed(messages) if message.role == "user"), "")
        relevant = self._ranking.relevant(text)
        if not set(_names(relevant[:_NUM_RELEVANT])) <= set(_names(self._selected)):
            others = [tool for tool in self._selected if tool not in relevant]
            chosen = _names([*relevant, *others][:NUM_SELECTED])
            self._selected = tuple(tool for tool in tools if tool.name in chosen)
        return self._selected


def _names(tools: Sequence[Tool]) -> list[str]:
    return [tool.name for tool in tools]
