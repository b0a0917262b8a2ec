"""A language model whose responses are based on documents. For `voice` it is an ordinary one: the passages are put into
the prompts that pass through it, and read ahead while the user still speaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from agent.documents.grounding import Grounding, ground, search_text
from agent.documents.index import Match
from agent.documents.support import Support, only_supported
from agent.language_model import Grammar, LanguageModel, LanguageModelWrapper, Progress, RemoteRequest, SourcedProgress
from chat.types import Effort, Message, OfferedTools, Opening, Tool, ToolChoice

_log = logging.getLogger("rejoinder.server")


class Documents(Protocol):
    """Searches the documents."""

    def search(self, question: str) -> list[Match]:
        """The best matches, the best first. Takes some milliseconds; runs on `executor`."""
        ...

    @property
    def executor(self) -> Executor:
        """Where searches run."""
        ...


async def _begun_at_once(
    replying: AsyncIterator[Progress | RemoteRequest], opening: str
) -> AsyncIterator[Progress | RemoteRequest]:
    """A response whose opening is certain: it is said before the language model has read the prompt."""
    yield SourcedProgress(f"{opening} ")
    text, said = "", 0
    async for progress in replying:
        if isinstance(progress, RemoteRequest):
            yield progress
            continue
        text += progress.committed
        if not said and (rest := text.removeprefix(opening).lstrip()):
            said = len(text) - len(rest)
        new, said = (text[said:], len(text)) if said else ("", 0)
        yield SourcedProgress.of(progress, new)


@dataclass
class _Search:
    """The newest search of a turn, so that the same words are not searched for again."""

    text: str = ""
    num_messages: int = 0
    matches: Sequence[Match] = ()


class GroundedLanguageModel(LanguageModelWrapper):
    """A `LanguageModel` that answers from documents where they have something to say.

    Args:
        documents: what is searched; None for nothing.
        enabled: whether responses use the documents; asked before each one.
    """

    def __init__(
        self,
        language_model: LanguageModel,
        documents: Documents | None,
        enabled: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(language_model)
        self._documents, self._enabled = documents, enabled
        self._last_search = _Search()
        self._grounding = Grounding()
        self._preparing: asyncio.Task[None] | None = None

    async def reply(
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
        self._stop_preparing()
        grounding = Grounding()
        if grammar is None and tool_choice in ("auto", "none"):
            grounding = await self._ground(messages, final=True, tool_suits=offered is not None and offered.expected)
        if grounding.passages:
            yield SourcedProgress(sources=grounding.sources)
        replying = self._model.reply(
            grounding.prompt(messages),
            max_tokens=max_tokens,
            deadline=deadline,
            tools=tools,
            tool_choice=tool_choice,
            offered=offered,
            parallel_tool_calls=parallel_tool_calls,
            effort=effort,
            grammar=Opening(grounding.openings) if grounding.openings else grammar,
        )
        if len(grounding.openings) == 1:
            replying = _begun_at_once(replying, grounding.openings[0])
        if grounding.passages:
            texts = [message.content for message in grounding.prompt(messages)]
            replying = only_supported(replying, Support(grounding.source_openings, texts))
        async for progress in replying:
            yield progress

    def prepare(
        self, messages: Sequence[Message], *, tools: Sequence[Tool] = (), tool_choice: ToolChoice = "auto"
    ) -> None:
        """See `LanguageModel`."""
        self._stop_preparing()
        if not self._searches(messages):
            self._model.prepare(messages, tools=tools, tool_choice=tool_choice)
            return
        self._preparing = asyncio.get_running_loop().create_task(self._prepare(messages, tools, tool_choice))

    async def _prepare(self, messages: Sequence[Message], tools: Sequence[Tool], tool_choice: ToolChoice) -> None:
        grounding = await self._ground(messages, final=False, tool_suits=False)
        self._model.prepare(grounding.prompt(messages), tools=tools, tool_choice=tool_choice)

    def _stop_preparing(self) -> None:
        """What is prepared later than this would cancel the request that is about to be made."""
        if self._preparing is not None:
            self._preparing.cancel()
            self._preparing = None

    def _searches(self, messages: Sequence[Message]) -> bool:
        return self._documents is not None and self._enabled() and bool(search_text(messages))

    async def _ground(self, messages: Sequence[Message], *, final: bool, tool_suits: bool) -> Grounding:
        """What the documents add to the response to the newest message."""
        if self._documents is None or not self._searches(messages):
            return Grounding()
        text = search_text(messages)
        if (text, len(messages)) != (self._last_search.text, self._last_search.num_messages):
            loop = asyncio.get_running_loop()
            try:
                matches = await loop.run_in_executor(self._documents.executor, self._documents.search, text)
            except Exception:
                _log.exception("the documents could not be searched; the response does without")
                return Grounding()
            if len(messages) != self._last_search.num_messages:
                self._grounding = Grounding()
            self._last_search = _Search(text, len(messages), matches)
        self._grounding = ground(
            messages[-1].content, self._last_search.matches, self._grounding, final=final, tool_suits=tool_suits
        )
        return self._grounding

    def cancel(self) -> None:
        """See `LanguageModel`."""
        self._stop_preparing()
        super().cancel()

    def fork(self) -> LanguageModel:
        """See `LanguageModel`. Responses outside the conversation use no documents."""
        return self._model.fork()
