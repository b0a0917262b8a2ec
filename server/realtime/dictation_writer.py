"""Cleans up what is dictated in a transcription session, turn by turn, and sends it to the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agent.background_tasks import BackgroundTasks
from agent.dictation.cleaner import DictationCleaner, corrects_what_precedes
from agent.language_model import LanguageModel
from server.realtime.events import ServerEvent, server_event

_MAX_JOINED_CHARACTERS = 400
"""Turns that correct each other are rewritten together up to this length, so that this stays quick."""


class DictationWriter:
    """The clean text of one session, in the order of its turns.

    Args:
        send: sends an event to the client.
    """

    def __init__(self, cleaner: Callable[[], DictationCleaner], send: Callable[[ServerEvent], None]) -> None:
        self._cleaner, self._send = cleaner, send
        self._tasks, self._turn = BackgroundTasks(), asyncio.Lock()
        self._item_ids, self._raw = list[str](), ""
        self._reader: LanguageModel | None = None

    def prepare(self) -> None:
        """Read the instructions before the first turn has ended."""
        self._cleaner().prepare()

    def read_ahead(self, raw: str) -> None:
        """The words so far of a turn that has not ended."""
        if raw:
            joined = f"{self._raw} {raw}" if self._continues(raw) else raw
            self._reader = self._cleaner().read_ahead(joined, self._reader)

    def add(self, item_id: str, raw: str) -> None:
        """A turn has been transcribed. If it corrects the one before it, both are rewritten together."""
        reader, self._reader = self._reader, None
        if not raw:
            return
        if self._continues(raw):
            self._item_ids, self._raw = [*self._item_ids, item_id], f"{self._raw} {raw}"
        else:
            self._item_ids, self._raw = [item_id], raw
        self._tasks.spawn(self._clean(self._item_ids, self._raw, reader))

    def _continues(self, raw: str) -> bool:
        """Whether a turn is rewritten together with the one before it."""
        fits = len(self._raw) + 1 + len(raw) <= _MAX_JOINED_CHARACTERS
        return bool(self._raw) and fits and corrects_what_precedes(raw)

    async def close(self) -> None:
        """The session has ended."""
        await self._tasks.close()

    async def _clean(self, item_ids: list[str], raw: str, reader: LanguageModel | None) -> None:
        async with self._turn:
            clean = await self._cleaner().clean(raw, reader)
        self._send(
            server_event(
                "rejoinder.clean", item_ids=item_ids, text=clean.text, raw=raw, objection=clean.objection or None
            )
        )
