"""Few tools in the prompt: where a conversation has many, the language model reads the five that suit what was said.

Small models choose badly among many functions, and every function has to be read. Another selection changes the
beginning of the prompt, which is then read again, so the current one is kept while it has what is needed, and a change
starts on interim transcripts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from agent.language_model import Grammar, LanguageModel, LanguageModelWrapper, Progress, RemoteRequest
from agent.tools.words import describing_stems, stems
from chat.types import Effort, Message, OfferedTools, Tool, ToolChoice, Truncation

MAX_TOOLS = 10
"""Tools that a prompt may have before some are selected. The built-in ones are fewer."""

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


class SelectingLanguageModel(LanguageModelWrapper):
    """A `LanguageModel` whose prompts have few tools. A required function is always among them.

    Prompts with and without tools differ from their beginning on, so each kind is read by a language model of its own.
    Both read ahead what was said when a turn begins, so that neither has to catch up in a later one.
    """

    def __init__(self, language_model: LanguageModel) -> None:
        super().__init__(language_model)
        self._selection = ToolSelection()
        self._has_tools: bool | None = None
        self._other: LanguageModel | None = None

    def reply(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int | None = None,
        deadline: float | None = None,
        tools: Sequence[Tool] = (),
        tool_choice: ToolChoice = "auto",
        offered: OfferedTools | None = None,
        parallel_tool_calls: bool = False,
        effort: Effort | None = None,
        grammar: Grammar | None = None,
    ) -> AsyncIterator[Progress | RemoteRequest]:
        """See `LanguageModel`."""
        options: dict[str, Any] = {
            "max_tokens": max_tokens,
            "deadline": deadline,
            "tool_choice": tool_choice,
            "offered": offered,
            "parallel_tool_calls": parallel_tool_calls,
            "effort": effort,
            "grammar": grammar,
        }
        only_looks_up = offered is not None and offered.expected and not offered.acts
        if tools and tool_choice == "auto" and only_looks_up and messages[-1].role == "user":
            return self._call_or_text(messages, tools, options)
        return self._ask(messages, tools, options)

    def _ask(
        self, messages: Sequence[Message], tools: Sequence[Tool], options: dict[str, Any]
    ) -> AsyncIterator[Progress | RemoteRequest]:
        self._switch(bool(tools), cancel=True)
        return self._model.reply(messages, tools=self._select(tools, options["tool_choice"], messages), **options)

    async def _call_or_text(
        self, messages: Sequence[Message], tools: Sequence[Tool], options: dict[str, Any]
    ) -> AsyncIterator[Progress | RemoteRequest]:
        """A response that may well be a call. If it begins as a text, it is asked for again without tools in the
        prompt: with them, small models talk about the tools that they decided not to call. But without them they
        promise to act."""
        decided = False
        async with aclosing(self._ask(messages, tools, options)) as stream:  # type: ignore[type-var]
            async for progress in stream:
                if decided or isinstance(progress, RemoteRequest) or progress.tool_calls:
                    decided = True
                    yield progress
                elif progress.committed.strip():
                    break
            else:
                return
        async for progress in self._ask(messages, (), options):
            yield progress

    def prepare(
        self, messages: Sequence[Message], *, tools: Sequence[Tool] = (), tool_choice: ToolChoice = "auto"
    ) -> None:
        """See `LanguageModel`."""
        self._switch(bool(tools), cancel=bool(messages) and messages[-1].role == "user")
        self._model.prepare(messages, tools=self._select(tools, tool_choice, messages), tool_choice=tool_choice)

    def limit_context(self, truncation: Truncation) -> None:
        """See `LanguageModel`."""
        super().limit_context(truncation)
        if self._other is not None:
            self._other.limit_context(truncation)

    def _switch(self, has_tools: bool, *, cancel: bool) -> None:
        """Go on with the language model that reads this kind of prompt.

        Args:
            cancel: whether what the other one does is of no more use. Both may read ahead.
        """
        if self._has_tools not in (None, has_tools):
            if cancel:
                self._model.cancel()
            self._model, self._other = self._other or self._model.fork(), self._model
        self._has_tools = has_tools

    def _select(self, tools: Sequence[Tool], tool_choice: ToolChoice, messages: Sequence[Message]) -> Sequence[Tool]:
        return self._selection.select(tools, messages) if tools and tool_choice == "auto" else tools

    def fork(self) -> LanguageModel:
        """See `LanguageModel`."""
        return SelectingLanguageModel(self._model.fork())
