"""Few tools in the prompt: where a conversation has many, the language model reads the five that suit what was said.

Small models choose badly among many functions, and every function has to be read. Another selection changes the
beginning of the prompt, which is then read again, so the current one is kept while it has what is needed, and a change
starts on interim transcripts.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from agent.matched_text import MAX_DESCRIPTION, for_patterns
from chat.types import Message, Tool

MAX_TOOLS = 10
"""Tools that a prompt may have before some are selected."""

NUM_SELECTED = 5

_NUM_RELEVANT = 2
"""The most relevant tools, which must be among those selected."""

_K1, _B = 1.2, 0.5
"""BM25's constants (Robertson and Zaragoza, 2009). Descriptions are short, so their length counts less than usual."""

_STOP_WORDS = frozenset(
    "a an the of to for in on at by and or is are was be do does can could would will please me my i you it its this "
    "that what which who how when where with from as if only example user tool function current one some any".split()
)

_NAME_WEIGHT = 3
"""How often the words of a tool's name count."""


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
        if not all(tool in self._selected for tool in relevant[:_NUM_RELEVANT]):
            others = [tool for tool in self._selected if tool not in relevant]
            chosen = [*relevant, *others][:NUM_SELECTED]
            self._selected = tuple(tool for tool in tools if tool in chosen)
        return self._selected


def stems(text: str) -> list[str]:
    """The words of a text in lower case, without the endings of plurals and verbs, and without words that say nothing
    about it."""
    text = for_patterns(text, MAX_DESCRIPTION)
    plain = re.findall(r"[a-z]+|\d+", re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower())
    return [re.sub(r"(?<=\w{3})(ies|es|s|ing|ed|e)$", "", word) for word in plain if word not in _STOP_WORDS]


def describing_stems(tool: Tool) -> Counter[str]:
    """What `stems` finds in a tool's name, description and parameters, with their number."""
    texts = [tool.description]
    for name, schema in tool.parameters.get("properties", {}).items():
        texts += [name, *_schema_texts(schema)]
    return Counter(_NAME_WEIGHT * stems(tool.name.replace("_", " ")) + stems(" ".join(texts).replace("_", " ")))


def _schema_texts(schema: Any) -> list[str]:
    """What a parameter's schema says about it, and the values that it may have."""
    if not isinstance(schema, dict):
        return []
    values = schema.get("enum", [])
    texts = [str(schema.get("description", "")), *(value for value in values if isinstance(value, str))]
    return texts + _schema_texts(schema.get("items"))
