"""What documents have to say about a turn: a search that the planner waits for, made once for the same words."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agent.documents.grounding import Grounding, ground, search_text
from agent.documents.index import Match
from chat.types import Message

if TYPE_CHECKING:
    from agent.documents.search import SharedDocuments

_log = logging.getLogger("rejoinder.server")


class DocumentEvidence:
    """The documents, for one conversation.

    Args:
        enabled: whether responses use the documents; asked before each one.
    """

    def __init__(self, documents: SharedDocuments, enabled: Callable[[], bool] = lambda: True) -> None:
        self._documents, self._enabled = documents, enabled
        self._searched, self._grounding = ("", 0), Grounding()  # the text, and the number of messages
        self._matches: Sequence[Match] = ()

    @property
    def names(self) -> Sequence[str]:
        """Names in the documents, if responses use them."""
        return self._documents.mentioned if self._enabled() else ()

    def is_asked(self, messages: Sequence[Message]) -> bool:
        """Whether the newest message is one to search for."""
        return self._enabled() and bool(search_text(messages))

    async def find(self, messages: Sequence[Message], *, final: bool) -> Grounding:
        """What the documents add to the response to the newest message.

        Args:
            final: whether the user has said all of it.
        """
        text = search_text(messages)
        if (text, len(messages)) != self._searched:
            loop = asyncio.get_running_loop()
            try:
                self._matches = await loop.run_in_executor(self._documents.executor, self._documents.search, text)
            except Exception:
                _log.exception("the documents could not be searched; the response does without")
                return Grounding()
            if len(messages) != self._searched[1]:
                self._grounding = Grounding()
            self._searched = (text, len(messages))
        self._grounding = ground(messages[-1].content, self._matches, self._grounding, final=final)
        return self._grounding
